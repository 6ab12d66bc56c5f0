"""Two estimates of the mean logit margin loss, after training and during it, are never mixed and always named."""

import pytest
import synthetic
from hand_made import QuickStore, add_diagnostics, add_study, add_trial, results_of

from reports.analysis.claims.judge import judge
from reports.analysis.claims.sources import Ours
from reports.analysis.margins import MARGIN_NOTES
from reports.analysis.planned import Planned, statuses_together
from reports.figures import margin_trajectories
from reports.figures.view import StudyView
from reports.tables.table import Key

STUDY = "trajectories_cifar10_rn18"


@pytest.fixture
def store(tmp_path):
    return QuickStore(tmp_path / "store")


def measured(store, known, training, lost=None, **evaluation):
    """Margins of two labels: each value is (label, seed) -> margin."""
    study, lost = {"evaluation": evaluation}, lost or {}
    trials = add_study(store, STUDY, {"at": [0.5] * 3, "ovr": [0.5] * 3}, study=study, statuses=lost)
    for place, trial in trials.items():
        state = {"status": lost[place], "reason": "loss became NaN"} if place in lost else {}
        add_trial(store, trial, curve=[{"epoch": 0, "train_margin": training.get(place)}], **state)
        if place in known:
            add_diagnostics(store, trial, {"train_margin_mean": known[place]})
    return results_of(store)


def margins(results, label, measure="margin"):
    sample = results.cell(Key(STUDY, label, measure, None, "last")).sample
    return sample and sample.values


ALL = [(label, seed) for label in ("at", "ovr") for seed in range(3)]


def test_seeds_without_diagnostics_are_left_out_and_not_filled_from_the_curve(store):
    known = {place: -2.0 for place in ALL if place != ("ovr", 2)}
    results = measured(store, known, dict.fromkeys(ALL, -1.0), diagnostics=True)
    assert margins(results, "at") == (-2.0,) * 3
    assert margins(results, "ovr") == (-2.0,) * 2
    assert margins(results, "ovr", "margin_ratio") == (1.0, 1.0)


@pytest.mark.parametrize("asked", [{"diagnostics": True}, {"suite": "diagnostics"}, {"suite": "paper"}])
def test_a_study_that_asks_for_diagnostics_waits_for_them(store, asked):
    """However few there are: its verdicts do not change from one estimate to the other as records come in."""
    results = measured(store, {("at", 0): -2.0}, dict.fromkeys(ALL, -1.0), **asked)
    assert margins(results, "at") == (-2.0,)
    assert margins(results, "ovr") is None


def test_a_study_that_does_not_ask_for_diagnostics_takes_the_curves(store):
    results = measured(store, dict.fromkeys(ALL, -2.0), dict.fromkeys(ALL, -1.0), suite="main")
    assert margins(results, "at") == margins(results, "ovr") == (-1.0,) * 3


@pytest.mark.parametrize("asked", [True, False])
def test_a_claim_about_margins_says_how_they_were_measured(store, asked):
    known = {(label, seed): (-3.0 if label == "ovr" else -2.0) + 0.01 * seed for label, seed in ALL}
    results = measured(store, known, {place: value / 2 for place, value in known.items()}, diagnostics=asked)
    (claim,) = [one for one in judge(Ours(results)) if one.id == "ovr-widens-margins"]
    (part,) = [one for one in claim.parts if one.where == STUDY]
    assert part.verdict == "holds"
    assert ("after training" in part.evidence, "during training" in part.evidence) == (asked, not asked)


def test_a_ratio_has_lost_the_seeds_of_both_its_trainings(store):
    known = {(label, seed): (-3.6 if label == "ovr" else -2.0) * (1 + 0.002 * seed) for label, seed in ALL}
    lost = {("at", 2): "collapsed"}
    results = measured(store, {}, known, lost, suite="main")
    cell = results.cell(Key(STUDY, "ovr", "margin_ratio", None, "last"))
    assert (cell.sample.n, cell.collapsed, cell.failed, cell.marks) == (2, 1, 0, "‡")
    (claim,) = [one for one in judge(Ours(results)) if one.id == "ovr-ratio"]
    (part,) = [one for one in claim.parts if one.where == STUDY]
    assert part.verdict == "undecided" and part.evidence.endswith("; OVR / AT n = 2 of 3, 1 collapsed ‡")
    both = [Planned(seed, "", status, {}) for seed, status in enumerate(["done", "missing", "failed", "done"])]
    base = [Planned(seed, "", status, {}) for seed, status in enumerate(["done", "collapsed", "collapsed"])]
    assert statuses_together(both, base) == ["done", "collapsed", "failed", "missing"]


@pytest.mark.parametrize("diagnostics", [False, True])
def test_the_figure_names_its_estimate_and_the_tables_one_where_it_differs(tmp_path, diagnostics):
    methods = {label: synthetic.METHODS[label] for label in ("at", "ovr")}
    synthetic.write_store(tmp_path, methods=methods, diagnostics=diagnostics, components=False, search=False)
    caption = margin_trajectories.draw(StudyView(results_of(tmp_path), "synthetic"))[1]
    assert MARGIN_NOTES["training"] in caption
    assert (MARGIN_NOTES["diagnostics"] in caption) == diagnostics
