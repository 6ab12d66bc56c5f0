"""From a study to its trials, quickly whatever its shape."""

import json
from collections import Counter

import pytest

from sweep.errors import UserError
from sweep.search.stored import open_search
from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.store.records.trial import TrialRecord
from sweep.studies.model import Study
from sweep.trials import cells as plan
from sweep.trials.candidates import searched_space
from sweep.trials.disk import counterexample_bytes, trial_bytes
from sweep.trials.identity import search_id, trial_hash
from sweep.trials.outlook import outlook
from sweep.trials.standing import standings
from tests import records
from trainers.config import TrialConfig

SMALL = {"title": "t", "dataset": "digits", "model": "small_cnn"}


def count(monkeypatch, owner, name, calls):
    """Let `calls` know how often a method is called."""
    original = getattr(owner, name)

    def counted(*arguments, **options):
        calls[name] += 1
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, counted)


def test_order_of_wrappers_and_spelled_out_defaults_do_not_matter(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        "{title: t, dataset: digits, model: small_cnn, seeds: [0], methods: {"
        "a: {method: sovr+awp+seat}, "
        "b: {method: sovr+seat+awp, hyperparameters: {M: 40, lam: 0.4}, awp: {gamma: 0.01}}}}"
    )
    first, second = plan.expand(Study.load(path))
    assert first.trial == second.trial and first.method == "sovr+awp+seat"


def test_cells_of_a_search_have_no_name_until_it_has_chosen(tmp_path):
    study = Study.load("digits", methods=["at", "sovr"])
    cells = plan.expand(study)
    assert [cell.trial is None for cell in cells] == [False] * 6 + [True] * 3
    store = open_store(tmp_path)
    assert plan.chosen_values(study, store) == {}
    made = plan.manifest(study, cells)  # the study's own values would be taken for what the search chose
    assert (
        cells[-1].hyperparameters == made.cells[-1].hyperparameters == {} and made.cells[-4].hyperparameters["M"] == 40
    )
    assert made.config_by_label["sovr_searched"].hyperparameters == {}
    seen = outlook(study, store, cells)
    assert seen.trials[-1].hyperparameters == {} and seen.trials[-4].hyperparameters["M"] == 40
    line = next(line for line in seen.text(study).splitlines() if line.startswith("sovr_searched"))
    assert line.endswith("chosen by the search") and "lam=" not in line
    search = records.search_record(search_id(study, "sovr"), chosen={"M": 20, "lam": 0.2})
    store.write_record(search.model_copy(update={"status": "running"}))
    assert plan.chosen_values(study, store) == {}
    store.write_record(search)
    cells = plan.expand(study, plan.chosen_values(study, store))
    assert all(cell.trial for cell in cells) and cells[-1].hyperparameters["M"] == 20
    assert (cells[-1].label, cells[-1].display) == ("sovr_searched", "SOVR, searched")
    assert (cells[-4].label, cells[-4].hyperparameters["M"]) == ("sovr", 40)  # the study's own values stay
    assert plan.states(cells, store) == ["missing"] * 9


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ([], 3),
        (["search.sovr.candidates=1000"], 25),  # of the paper's grid, which holds the study's values
        (["search.sovr.sampler=grid"], 25),  # however many candidates are asked for
        (["search.sovr.sampler=grid", "methods.sovr.hyperparameters.lam=0.5"], 26),  # the study's are beside it
        (["search.sovr.candidates=1000", "search.sovr.space=continuous"], 1000),
    ],
)
def test_no_more_candidates_are_announced_than_a_search_will_try(tmp_path, settings, most):
    study = Study.load("digits", overrides=settings, methods=["sovr"])
    store = open_store(tmp_path)
    assert f"search sovr: up to {most} candidates" in outlook(study, store, plan.expand(study)).text(study)
    assert open_search(study, "sovr", store).wanted == most


def test_a_search_of_a_length_reaches_about_the_studys_own_value():
    study = Study.load("digits", overrides=["search={all: {seeds: [1000]}}"])
    found = searched_space(study, "mma")
    assert found.own == {"d_max": 0.4} and found.space["d_max"].choices == (0.3, 0.5, 0.8, 0.4)
    paper = Study.load("cifar10_rn18", overrides=["search={all: {selection: {protocol: heldout, validation: 1000}}}"])
    assert searched_space(paper, "mma").space["d_max"].choices == (0.0471, 0.0784, 0.1255)


def test_lengths_are_not_searched_in_a_ball_without_extent():
    study = Study.load("digits", overrides=["search={mma: {space: continuous}}", "train.attack.epsilon=0"])
    with pytest.raises(UserError, match="search of mma: at the training's radius 0 .*search.mma.pin=true"):
        searched_space(study, "mma")


def test_the_manifest_says_how_things_are_shown_and_what_a_method_trains_on():
    study = Study.load("digits", methods=["st", "mart"])
    made = plan.manifest(study, plan.expand(study))
    assert made.displays == {"dataset": "Digits", "model": "small CNN"}
    assert made.inner_attacks == {
        "st": {"start": "uniform", "mode": "train", "trains_on": "clean"},
        "mart": {"start": "gauss", "mode": "eval", "trains_on": "attacked"},
    }


def test_two_labels_of_one_method_are_told_from_each_other():
    more = "methods={at: {}, again: {method: at}, named: {method: at, display: AT anew}}"
    cells = plan.expand(Study.load("digits", overrides=[more, "search={}"]))
    assert list(dict.fromkeys(cell.display for cell in cells)) == ["AT", "AT (again)", "AT anew"]


def test_headline_follows_the_protocol():
    study = Study.load("cifar10_ddpm")
    assert plan.evaluated_checkpoints(study, study.config("at+ddpm")) == ["best_validation"]
    assert plan.diagnosed_checkpoints(study, study.config("at+ddpm")) == []
    study = Study.load("cifar10_wrn")
    assert plan.diagnosed_checkpoints(study, study.config("at")) == ["best_test", "last"]
    study = Study.load("cifar10_m_effect")
    assert plan.evaluated_checkpoints(study, study.config("at")) == ["best_test", "last"]


@pytest.mark.parametrize(("labels", "seeds"), [(1, 10_000), (100, 100), (10_000, 1)])
def test_ten_thousand_trials_are_planned_by_one_check_and_a_dump_for_each_label(tmp_path, monkeypatch, labels, seeds):
    methods = {
        f"s{i}": {"method": "sovr", "hyperparameters": {"M": i % 100, "lam": round(0.1 + i / 10_000, 4)}}
        for i in range(labels)
    }
    path = tmp_path / "many.json"
    path.write_text(json.dumps({**SMALL, "seeds": list(range(seeds)), "methods": methods}))
    calls = Counter()
    for name in ("__init__", "model_dump"):
        count(monkeypatch, TrialConfig, name, calls)
    cells = plan.expand(Study.load(path))
    assert len({cell.trial for cell in cells}) == 10_000
    # Labels share all but their hyperparameters, and seeds all but the seed.
    assert calls == {"__init__": 1, "model_dump": labels}


def test_only_records_of_trials_that_are_not_done_are_parsed_for_their_states(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    for number in range(100):
        store.write_record(records.trial_record(f"{number:064d}"[::-1], status="collapsed" if number == 7 else "done"))
    parsed = Counter()
    count(monkeypatch, TrialRecord, "decoded", parsed)
    states = Counter(store.trial_states().values())
    assert states == {"done": 99, "collapsed": 1} and parsed["decoded"] == 1


def test_a_label_among_thousands_is_the_trial_that_it_is_alone(tmp_path):
    """Labels share what they have in common; none may get what belongs to another."""
    entries = {
        "a": {"method": "sovr", "hyperparameters": {"M": 20}},
        "b": {"method": "sovr", "hyperparameters": {"M": 30}, "train": {"epochs": 3}},
        "c": {"method": "sovr", "hyperparameters": {"M": 30}},
        "d": {"method": "sovr+awp", "hyperparameters": {"M": 30}},
        "e": {"method": "sovr+awp", "hyperparameters": {"M": 30}, "awp": {"gamma": 0.02}},
        "sovr": None,
    }

    def load(methods) -> Study:
        path = tmp_path / "s.yaml"
        path.write_text(json.dumps({**SMALL, "methods": methods}))
        return Study.load(path)

    together = {(cell.label, cell.seed): cell.trial for cell in plan.expand(load(entries))}
    alone = {
        (cell.label, cell.seed): trial_hash(TrialConfig.model_validate(cell.config.model_dump()))
        for label, entry in entries.items()
        for cell in plan.expand(load({label: entry}))
    }
    assert together == alone and len(set(together.values())) == 18


def test_an_epoch_is_kept_by_the_trainings_that_reach_it_and_by_no_search():
    study = Study.load("svhn_rn18")
    assert plan.diagnosed_checkpoints(study, study.config("at")) == ["best_test", "epoch-100", "last"]
    assert plan.evaluated_checkpoints(study, study.config("at")) == ["best_test"]
    assert plan.diagnosed_checkpoints(study, study.config("mma")) == ["best_test", "last"]  # of 50,000 steps
    asked = ["evaluation.checkpoints=[headline, epoch-30]", "methods.sovr.train.epochs=20"]
    study = Study.load("digits", methods=["at", "sovr"], overrides=asked)
    at = study.config("at")
    assert at.selection.keep == (30,) and study.config("sovr").selection.keep is None
    assert plan.evaluated_checkpoints(study, at) == ["best_validation", "epoch-30"]
    assert study.search_config("sovr", {}).selection.keep is None
    plain = Study.load("digits").config("at")
    assert trial_hash(at) != trial_hash(plain) == trial_hash(at.model_copy(update={"selection": plain.selection}))
    assert trial_bytes(at) * 3 == trial_bytes(plain) * 4


def test_counterexamples_take_a_bit_for_each_value_of_each_attacked_image():
    changes = ("evaluation.suite=null", "evaluation.attacks=[clean,pgd-20,fgsm]", "evaluation.images=100")
    assert counterexample_bytes(Study.load("digits", overrides=changes)) == 2 * 100 * 64 // 8
    left_out = (*changes, "evaluation.counterexamples=false")
    assert counterexample_bytes(Study.load("digits", overrides=left_out)) == 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("evaluation.checkpoints=[epoch-301]", "epoch-301 is beyond the end: the training has 300 epochs"),
        ("evaluation.diagnosed=[epoch-0]", "must be headline, last, best_test, best_validation or epoch-N"),
        ("evaluation.checkpoints=[best]", "must be headline, last, best_test, best_validation or epoch-N"),
    ],
)
def test_a_checkpoint_that_cannot_be_is_refused(asked, message):
    with pytest.raises(UserError, match=message):
        Study.load("digits", overrides=[asked])


def test_a_trial_that_two_columns_share_is_counted_once(tmp_path):
    study, store = Study.load("digits", methods=["at", "sovr"]), open_store(tmp_path)
    own = study.config("sovr").hyperparameters
    store.write_record(records.search_record(search_id(study, "sovr"), chosen={"M": own["M"], "lam": own["lam"]}))
    cells = plan.stored_cells(study, store)
    seen = outlook(study, store, cells)
    assert len(seen.trials) == 9 and seen.counts == {"missing": 6} and seen.to_run == 6 and seen.evaluations == 18
    assert "6 trials: 6 missing; 6 to run\n18 evaluations" in seen.text(study)
    write_manifest(store, plan.manifest(study, cells))
    (standing,) = standings(store, None, pytest.fail)
    assert len(standing.trials) == 9 and standing.counts == {"left": 6} and standing.evaluations["wanted"] == 18
    assert "6 trials: 6 left" in standing.text()
