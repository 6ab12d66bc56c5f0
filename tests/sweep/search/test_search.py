"""A search's outcome depends on its records alone: no configuration twice, none lost, whatever the order or kills."""

import hashlib
import itertools
import json
import random
import shutil
import tempfile
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sweep.errors import UserError
from sweep.search.pruning import cut_offs, first_drop, judged, rungs
from sweep.search.search import Search
from sweep.search.settings import GENERATION, SearchSettings
from sweep.store.records.search import SearchRecord
from sweep.studies.grid import grid_points
from trainers.config import Recipe

SPACE = {"M": IntDistribution(20, 100, step=20), "lam": FloatDistribution(0.2, 1.0, step=0.2)}
EPOCHS = 9


@pytest.fixture
def memory():
    """Optuna's journal waits for the disk at every step; a folder in memory does not."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        yield Path(folder)


def settings(**changes):
    facts = {"id": "s", "label": "sovr", "method": "sovr", "space": SPACE, "rungs": (1, 3), "candidates": 12}
    return SearchSettings(**{**facts, "paper_value": {"M": 40, "lam": 0.4}, **changes})


def name(values):
    return json.dumps(values, sort_keys=True)


def trial(values, seed=1000):
    return hashlib.sha256(f"{name(values)} {seed}".encode()).hexdigest()


def tell_all(search, state, rows):
    for candidate, run in search.trainings():
        search.tell(candidate, run, state, rows)


def stored(search):
    """The search's record, written and read."""
    record = search.record()
    return SearchRecord.decoded(record.path, record.encoded())


def curve(values, seed=1000):
    top = 0.6 - 0.1 * abs(values["M"] - 60) / 40 - 0.1 * abs(values["lam"] - 0.6)
    top += 0.05 * random.Random(f"{name(values)} {seed}").random() * (seed != 1000)
    return [
        {
            "validation_margin_accuracy": round(top * (1 - 0.5 ** (epoch + 1)), 6),
            "validation_clean_accuracy": round(0.9 - top * epoch / 20, 6),
        }
        for epoch in range(EPOCHS)
    ]


def run(folder, order=0, kills=0.0, **changes):
    """A whole search; candidates complete in a random order, and sometimes the process is killed in between."""
    chance = random.Random(order)
    record = None
    search = Search(settings(**changes), trial, folder / "journal.log")
    while not search.finished:
        if search.advance():
            record = stored(search)
        waiting = search.trainings()
        chance.shuffle(waiting)
        for candidate, training in waiting:
            search.tell(candidate, training, "done", curve(candidate.hyperparameters, training.seed))
            record = stored(search)
            if chance.random() < kills:
                search = Search(settings(**changes), trial, folder / "journal.log", record)
                break
    return record


@pytest.mark.parametrize("seeds", [(1000,), (1000, 1001, 1002)])
@pytest.mark.parametrize("objectives", [("margin",), ("margin", "clean")])
def test_order_of_completion_and_kills_change_nothing(memory, objectives, seeds):
    undisturbed = run(memory, objectives=objectives, seeds=seeds)
    for order in (1, 2):
        assert run(memory, order, kills=0.3, objectives=objectives, seeds=seeds) == undisturbed


def test_a_value_is_the_mean_over_the_seeds_and_only_the_best_third_goes_on(memory):
    search = Search(settings(seeds=(7, 8)), trial, memory / "journal.log")
    search.advance()
    first = search.trainings()
    assert [training.seed for _, training in first] == [7] * GENERATION
    for (candidate, training), value in zip(first, (0.1, 0.4, 0.3, 0.2), strict=True):
        assert not any(training.seed == 8 for _, training in search.trainings())  # until all first seeds have ended
        search.tell(candidate, training, "done", [{"validation_margin_accuracy": value}] * EPOCHS)
    # The best third of four are two; the study's own values go on whatever they reached.
    assert [(candidate.index, training.seed) for candidate, training in search.trainings()] == [(0, 8), (1, 8), (2, 8)]
    assert search.candidates[3].state == "pruned"
    for candidate, training in search.trainings():
        search.tell(candidate, training, "done", [{"validation_margin_accuracy": 0.2}] * EPOCHS)
    assert [candidate.value for candidate in search.candidates] == pytest.approx([0.15, 0.3, 0.25, 0.2])
    assert [candidate.epochs for candidate in search.candidates] == [18, 18, 18, 9]


def test_a_seed_that_failed_or_collapsed_decides_for_its_candidate(memory):
    search = Search(settings(seeds=(7, 8), candidates=2, pruner="none"), trial, memory / "journal.log")
    search.advance()
    tell_all(search, "done", [{"validation_margin_accuracy": 0.5}] * EPOCHS)
    for (candidate, training), state in zip(search.trainings(), ("collapsed", "failed"), strict=True):
        search.tell(candidate, training, state, [{"validation_margin_accuracy": 0.5}] * 2)
    assert [(one.state, one.value) for one in search.candidates] == [("collapsed", 0.0), ("failed", None)]
    assert search.chosen()[0] is None


def test_the_studys_own_values_come_first_and_the_papers_second(memory):
    record = run(memory, own_value={"M": 20, "lam": 0.2})
    assert [c.hyperparameters for c in record.candidates[:2]] == [{"M": 20, "lam": 0.2}, {"M": 40, "lam": 0.4}]
    assert (record.own_value, record.paper_value) == ({"M": 20, "lam": 0.2}, {"M": 40, "lam": 0.4})


def test_a_record_from_before_there_were_several_seeds_is_read(memory):
    whole = run(memory)
    old = json.loads(whole.model_dump_json(exclude={"seeds", "rungs", "own_value"}))
    for candidate in old["candidates"]:
        del candidate["runs"]
    record = SearchRecord.model_validate(old)
    assert record.all_seeds == (1000,)
    search = Search(settings(), trial, memory / "journal.log", record)
    assert search.finished and search.record().chosen == whole.chosen


def test_every_configuration_is_proposed_once_without_float_dust_and_the_papers_value_first(memory):
    record = run(memory, candidates=25)
    proposed = [name(candidate.hyperparameters) for candidate in record.candidates]
    assert len(set(proposed)) == len(proposed) == 25
    assert record.candidates[0].hyperparameters == {"M": 40, "lam": 0.4}
    assert {candidate.hyperparameters["lam"] for candidate in record.candidates} == {0.2, 0.4, 0.6, 0.8, 1.0}


def test_the_search_finds_the_best_and_prunes_on_the_way(memory):
    record = run(memory, candidates=16)
    assert record.chosen == {"M": 60, "lam": 0.6}
    assert any(candidate.state == "pruned" for candidate in record.candidates)
    assert all(candidate.epochs < EPOCHS for candidate in record.candidates if candidate.state == "pruned")
    assert "the study's own values reached 0.5290" in record.reason


def test_the_first_generation_and_a_search_without_pruner_prune_nothing(memory):
    record = run(memory)
    assert not any(c.state == "pruned" for c in record.candidates if c.generation == 0)
    assert not any(c.state == "pruned" for c in run(memory / "none", pruner="none").candidates)


def test_the_journal_is_complete_after_a_kill_and_opens_in_optuna(memory):
    record = run(memory, order=5, kills=0.4)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(memory / "journal.log")))
    trials = optuna.load_study(study_name="s", storage=storage).trials
    assert [trial.params for trial in trials] == [c.hyperparameters for c in record.candidates]
    assert [trial.value for trial in trials] == [c.value for c in record.candidates]
    assert {trial.state.name for trial in trials} == {"COMPLETE"}


def test_a_journal_that_is_replaced_or_unwritable_changes_no_search(memory, capsys):
    """Another store's, merged in; a link or lock that cannot be made; a folder in its place."""
    undisturbed = run(memory / "undisturbed")

    def replaced(folder):
        shutil.copy(memory / "undisturbed" / "journal.log", folder / "journal.log")

    def cut(folder):
        (folder / "journal.log").write_bytes(b'{"op_code": 4, "worker')

    def taken(folder):
        if (folder / "journal.log").is_file():
            (folder / "journal.log").unlink()
            (folder / "journal.log").mkdir()

    for number, disturb in enumerate((replaced, cut, taken)):
        folder = memory / str(number)
        search = Search(settings(), trial, folder / "journal.log")
        while not search.finished:
            search.advance()
            for candidate, training in search.trainings():
                search.tell(candidate, training, "done", curve(candidate.hyperparameters, training.seed))
                if len(search.trainings()) == 2:
                    disturb(folder)
        assert stored(search) == undisturbed
        said = capsys.readouterr().err
        assert len(said.splitlines()) <= 1 and "Traceback" not in said
        assert str(folder / "journal.log") in said or disturb is not taken  # Optuna may not notice the others


def test_the_grid_is_run_whole_with_the_papers_value_among_it(memory):
    record = run(memory, sampler="grid")
    assert sorted(name(c.hyperparameters) for c in record.candidates) == sorted(map(name, grid_points(SPACE)))
    assert record.chosen == {"M": 60, "lam": 0.6}


def test_a_papers_value_outside_of_the_stated_grid_is_still_tried(memory):
    outside = {"M": 40, "lam": 1.6}
    record = run(memory, order=2, kills=0.4, paper_value=outside)
    assert record.candidates[0].hyperparameters == outside
    assert record == run(memory / "undisturbed", paper_value=outside)


def test_a_small_space_ends_the_search_early(memory):
    space = {"flag": CategoricalDistribution((True, False))}
    search = Search(settings(space=space, paper_value={"flag": True}), trial, memory / "journal.log")
    search.advance()
    assert sorted(c.hyperparameters["flag"] for c in search.candidates) == [False, True]
    tell_all(search, "done", [{"validation_margin_accuracy": 0.1}])
    assert search.finished and not search.advance()


def test_ties_go_to_the_papers_value(memory):
    search = Search(settings(candidates=4), trial, memory / "journal.log")
    search.advance()
    tell_all(search, "done", [{"validation_margin_accuracy": 0.5}] * EPOCHS)
    assert search.chosen()[0].index == 0


def test_failed_and_collapsed_candidates_are_never_chosen(memory):
    search = Search(settings(candidates=4), trial, memory / "journal.log")
    search.advance()
    states = ["failed", "collapsed", "done", "done"]
    for (candidate, training), state, value in zip(search.trainings(), states, (0.9, 0.9, 0.1, 0.2), strict=True):
        search.tell(candidate, training, state, [{"validation_margin_accuracy": value}] * EPOCHS)
    assert search.chosen()[0].index == 3
    restarted = Search(settings(candidates=4), trial, memory / "journal.log", search.record())
    assert restarted.record() == search.record()


def test_failed_candidates_of_any_generation_may_be_run_again(memory):
    whole = run(memory, pruner="none")
    reopened = {"state": "open", "value": None, "values": None, "epochs": 0, "robust": (), "clean": (), "runs": ()}
    candidates = tuple(c.model_copy(update=reopened) if c.index in (1, 6) else c for c in whole.candidates)
    again = whole.model_copy(update={"candidates": candidates})
    search = Search(settings(pruner="none"), trial, memory / "journal.log", again)
    search.advance()
    for candidate, training in search.trainings():
        search.tell(candidate, training, "done", curve(candidate.hyperparameters))
    search.advance()
    assert search.record() == whole
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(memory / "journal.log")))
    trials = optuna.load_study(study_name="s", storage=storage).trials
    assert [trial.value for trial in trials] == [c.value for c in whole.candidates]


def test_a_search_of_which_everything_failed_says_so(memory):
    search = Search(settings(candidates=2), trial, memory / "journal.log")
    search.advance()
    tell_all(search, "failed", [])
    assert search.record().status == "failed"
    assert search.record().chosen is None


def test_a_pareto_front_holds_what_nothing_beats_in_both(memory):
    record = run(memory, objectives=("margin", "clean"))
    whole = {c.index: c.values for c in record.candidates if c.state == "done"}
    for one, other in itertools.permutations(record.front, 2):
        assert not all(a >= b for a, b in zip(whole[one], whole[other], strict=True)) or whole[one] == whole[other]
    assert record.chosen in [record.candidates[index].hyperparameters for index in record.front]


def test_a_full_record_of_another_search_is_judged_as_if_it_had_been_pruned(memory):
    search = Search(settings(), trial, memory / "journal.log")
    search.advance()
    for candidate, training in search.trainings():
        search.tell(candidate, training, "done", curve(candidate.hyperparameters))
    search.advance()
    late, training = search.trainings()[0]
    assert late.generation == 1 and search.cut_offs(late)
    search.tell(late, training, "done", [{"validation_margin_accuracy": 0.01}] * EPOCHS)
    assert (late.state, late.epochs) == ("pruned", 1)


def test_another_space_under_the_same_name_is_refused(memory):
    record = run(memory)
    with pytest.raises(UserError, match="another space"):
        Search(settings(space={"M": SPACE["M"]}, paper_value={"M": 40}), trial, memory / "journal.log", record)


def test_a_grid_over_a_continuous_space_is_refused(memory):
    with pytest.raises(UserError, match="continuous"):
        Search(settings(space={"M": FloatDistribution(0, 1)}, sampler="grid"), trial, memory / "journal.log")


def test_a_generation_waits_for_the_one_before(memory):
    search = Search(settings(), trial, memory / "journal.log")
    assert search.advance() and not search.advance()
    assert len(search.candidates) == GENERATION


def recipe(**schedule):
    return Recipe(epochs=200, schedule=schedule)


def test_no_rung_lies_before_the_first_drop_of_the_rate():
    assert first_drop(recipe(kind="piecewise", at=[100, 150], factors=[0.1, 0.01]), 391) == 100
    assert first_drop(recipe(kind="piecewise_epoch", at=[100, 150], factors=[0.1, 0.01]), 391) == 99
    assert first_drop(recipe(kind="steps", at=[3910, 7820], factors=[0.3, 0.1]), 391) == 10
    assert first_drop(recipe(kind="interpolate", at=[0, 20, 200], factors=[0.0, 1.0, 0.0]), 391) == 109
    assert first_drop(recipe(kind="constant"), 391) is None
    assert rungs(200, 100) == [110, 150] and rungs(18, 11) == [12, 15] and rungs(3, 2) == [] and rungs(9, None) == []


def test_cut_offs_by_hand():
    curves = [[0.1, 0.2, 0.3, 0.9], [0.3, 0.1, 0.1, 0.1], [0.2, 0.2, 0.2, 0.2], [0.4]]
    # At one epoch four values: the best third (two) ends at 0.3. At three epochs three values: the best is 0.3.
    assert cut_offs(curves, [1, 3]) == {1: 0.3, 3: 0.3}
    assert judged([0.2], {1: 0.3}) == (1, True)
    assert judged([0.3, 0.1], {1: 0.3}) == (2, False)
    assert judged([None, None, 0.1, 0.9], {1: 0.3, 3: 0.3}) == (3, True)


def test_searches_on_the_recorded_grids_find_their_best_with_a_quarter_of_the_epochs():
    """Played on trainings that were recorded, so that nothing but the search itself is judged."""
    from benchmarks.search_efficiency import LIMIT, evaluate

    measured = evaluate()
    assert set(measured) == {"pgd, 1 seed", "pgd, 2 seeds", "pgd, 3 seeds", "margin, 1 seed", "margin, 2 seeds"}
    assert all(row["median_share_of_epochs"] <= LIMIT == 0.25 for row in measured.values())
    assert all(row["median_regret"] <= row["standard_error"] for row in measured.values())
    for row in measured.values():  # a median says nothing of the single search
        missed = sum(one["best_value"] - one["chosen_value"] > row["standard_error"] for one in row["searches"])
        assert row["within_one_error"] == len(row["searches"]) - missed >= row["within_both"] > 0


def test_a_grid_that_was_recorded_with_other_settings_says_which():
    from benchmarks.digits_grid import config, differing_settings

    now = json.loads(config({}, 0).model_dump_json())
    before = {**now, "recipe": {**now["recipe"], "learning_rate": 0.7}, "plugin": "x"}
    rate = f"recipe.learning_rate 0.7 -> {now['recipe']['learning_rate']}"
    assert differing_settings(now, now) == [] and differing_settings(before, now) == [rate, 'plugin "x" -> null']
