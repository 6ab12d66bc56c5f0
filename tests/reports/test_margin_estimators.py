"""Two estimates of the mean logit margin loss, after training and during it, are never mixed and always named."""

import pytest
import synthetic
from hand_made import QuickStore, add_diagnostics, add_study, add_trial, results_of

from reports.figures import margin_trajectories
from reports.figures.view import StudyView
from reports.margins import MARGIN_NOTES
from reports.tables.table import Key

STUDY = "trajectories_cifar10_rn18"


@pytest.fixture
def store(tmp_path):
    return QuickStore(tmp_path / "store")


def measured(store, diagnostics, training):
    """Margins of two labels: each value is (label, seed) -> margin."""
    trials = add_study(store, STUDY, {"at": [0.5] * 3, "ovr": [0.5] * 3})
    for place, trial in trials.items():
        add_trial(store, trial, curve=[{"epoch": 0, "train_margin": training.get(place)}])
        if place in diagnostics:
            add_diagnostics(store, trial, {"train_margin_mean": diagnostics[place]})
    return results_of(store)


def margins(results, label, measure="margin"):
    sample = results.cell(Key(STUDY, label, measure, None, "last")).sample
    return sample and sample.values


ALL = [(label, seed) for label in ("at", "ovr") for seed in range(3)]


def test_seeds_without_diagnostics_are_left_out_and_not_filled_from_the_curve(store):
    known = {place: -2.0 for place in ALL if place != ("ovr", 2)}
    results = measured(store, known, {("ovr", 2): -1.0, ("at", 0): -1.0})
    assert results.margins.estimator(STUDY) == "diagnostics"
    assert margins(results, "at") == (-2.0,) * 3
    assert margins(results, "ovr") == (-2.0,) * 2
    assert margins(results, "ovr", "margin_ratio") == (1.0, 1.0)


def test_a_study_with_more_curves_than_diagnostics_takes_the_curves_for_all(store):
    results = measured(store, {("at", 0): -2.0}, dict.fromkeys(ALL, -1.0))
    assert results.margins.estimator(STUDY) == "training"
    assert margins(results, "at") == margins(results, "ovr") == (-1.0,) * 3


def test_diagnostics_count_where_all_have_both(store):
    results = measured(store, dict.fromkeys(ALL, -2.0), dict.fromkeys(ALL, -1.0))
    assert margins(results, "at") == (-2.0,) * 3


@pytest.mark.parametrize("diagnostics", [False, True])
def test_the_figure_names_its_estimate_and_the_tables_one_where_it_differs(tmp_path, diagnostics):
    methods = {label: synthetic.METHODS[label] for label in ("at", "ovr")}
    synthetic.write_store(tmp_path, methods=methods, diagnostics=diagnostics, components=False, search=False)
    caption = margin_trajectories.draw(StudyView(results_of(tmp_path), "synthetic"))[1]
    assert MARGIN_NOTES["training"] in caption
    assert (MARGIN_NOTES["diagnostics"] in caption) == diagnostics
