"""A search's outcome depends on its records alone: no configuration twice, none lost, whatever the order or kills."""

import hashlib
import itertools
import json
import random
import tempfile
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sweep.errors import UserError
from sweep.search.pruning import cut_offs, judged, rungs
from sweep.search.sampling import grid_points
from sweep.search.search import GENERATION, Search, SearchSettings
from sweep.store.records import SearchRecord

SPACE = {"M": IntDistribution(20, 100, step=20), "lam": FloatDistribution(0.2, 1.0, step=0.2)}
EPOCHS = 9


@pytest.fixture
def memory():
    """Optuna's journal waits for the disk at every step; a folder in memory does not."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        yield Path(folder)


def settings(**changes):
    facts = {"id": "s", "label": "sovr", "method": "sovr", "space": SPACE, "epochs": EPOCHS}
    return SearchSettings(**{**facts, "paper_value": {"M": 40, "lam": 0.4}, **changes})


def name(values):
    return json.dumps(values, sort_keys=True)


def trial(values):
    return hashlib.sha256(name(values).encode()).hexdigest()


def stored(search):
    """The search's record, written and read."""
    record = search.record()
    return SearchRecord.decoded(record.path, record.encoded())


def curve(values):
    top = 0.6 - 0.1 * abs(values["M"] - 60) / 40 - 0.1 * abs(values["lam"] - 0.6)
    return [
        {
            "validation_pgd_accuracy": round(top * (1 - 0.5 ** (epoch + 1)), 6),
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
        waiting = search.open()
        chance.shuffle(waiting)
        for candidate in waiting:
            search.tell(candidate, "done", curve(candidate.hyperparameters))
            record = stored(search)
            if chance.random() < kills:
                search = Search(settings(**changes), trial, folder / "journal.log", record)
                break
    return record


@pytest.mark.parametrize("objectives", [("robust",), ("clean", "robust")])
def test_order_of_completion_and_kills_change_nothing(memory, objectives):
    undisturbed = run(memory, objectives=objectives)
    for order in (1, 2):
        assert run(memory, order, kills=0.3, objectives=objectives) == undisturbed


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
    assert "the paper's value reached 0.5290" in record.reason


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
    for candidate in search.open():
        search.tell(candidate, "done", [{"validation_pgd_accuracy": 0.1}])
    assert search.finished and not search.advance()


def test_ties_go_to_the_papers_value(memory):
    search = Search(settings(candidates=4), trial, memory / "journal.log")
    search.advance()
    for candidate in search.open():
        search.tell(candidate, "done", [{"validation_pgd_accuracy": 0.5}] * EPOCHS)
    assert search.chosen()[0].index == 0


def test_failed_and_collapsed_candidates_are_never_chosen(memory):
    search = Search(settings(candidates=4), trial, memory / "journal.log")
    search.advance()
    states = ["failed", "collapsed", "done", "done"]
    for candidate, state, value in zip(search.open(), states, (0.9, 0.9, 0.1, 0.2), strict=True):
        search.tell(candidate, state, [{"validation_pgd_accuracy": value}] * EPOCHS)
    assert search.chosen()[0].index == 3
    restarted = Search(settings(candidates=4), trial, memory / "journal.log", search.record())
    assert restarted.record() == search.record()


def test_failed_candidates_of_any_generation_may_be_run_again(memory):
    whole = run(memory, pruner="none")
    reopened = {"state": "open", "value": None, "values": None, "epochs": 0, "robust": (), "clean": ()}
    candidates = tuple(c.model_copy(update=reopened) if c.index in (1, 6) else c for c in whole.candidates)
    again = whole.model_copy(update={"candidates": candidates})
    search = Search(settings(pruner="none"), trial, memory / "journal.log", again)
    search.advance()
    for candidate in search.open():
        search.tell(candidate, "done", curve(candidate.hyperparameters))
    search.advance()
    assert search.record() == whole
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(memory / "journal.log")))
    trials = optuna.load_study(study_name="s", storage=storage).trials
    assert [trial.value for trial in trials] == [c.value for c in whole.candidates]


def test_a_search_of_which_everything_failed_says_so(memory):
    search = Search(settings(candidates=2), trial, memory / "journal.log")
    search.advance()
    for candidate in search.open():
        search.tell(candidate, "failed", [])
    assert search.record().status == "failed"
    assert search.record().chosen is None


def test_a_pareto_front_holds_what_nothing_beats_in_both(memory):
    record = run(memory, objectives=("clean", "robust"))
    whole = {c.index: c.values for c in record.candidates if c.state == "done"}
    for one, other in itertools.permutations(record.front, 2):
        assert not all(a >= b for a, b in zip(whole[one], whole[other], strict=True)) or whole[one] == whole[other]
    assert record.chosen in [record.candidates[index].hyperparameters for index in record.front]


def test_a_full_record_of_another_search_is_judged_as_if_it_had_been_pruned(memory):
    search = Search(settings(), trial, memory / "journal.log")
    search.advance()
    for candidate in search.open():
        search.tell(candidate, "done", curve(candidate.hyperparameters))
    search.advance()
    late = search.open()[0]
    assert late.generation == 1 and search.cut_offs(late)
    search.tell(late, "done", [{"validation_pgd_accuracy": 0.01}] * EPOCHS)
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


def test_rungs_and_cut_offs_by_hand():
    assert rungs(200) == [23, 67] and rungs(9) == [1, 3] and rungs(2) == [1] and rungs(1) == []
    curves = [[0.1, 0.2, 0.3, 0.9], [0.3, 0.1, 0.1, 0.1], [0.2, 0.2, 0.2, 0.2], [0.4]]
    # At one epoch four values: the best third (two) ends at 0.3. At three epochs three values: the best is 0.3.
    assert cut_offs(curves, 9) == {1: 0.3, 3: 0.3}
    assert judged([0.2], {1: 0.3}) == (1, True)
    assert judged([0.3, 0.1], {1: 0.3}) == (2, False)
    assert judged([None, None, 0.1, 0.9], {1: 0.3, 3: 0.3}) == (3, True)


def test_searches_on_the_recorded_grid_find_its_best_with_a_third_of_its_epochs():
    """Played on trainings that were recorded, so that nothing but the search itself is judged."""
    from benchmarks.search_efficiency import LIMIT, evaluate

    for what, measured in evaluate().items():
        assert measured["median_regret"] <= measured["standard_error"], what
        assert measured["median_share_of_epochs"] <= LIMIT, what
