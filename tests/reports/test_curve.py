"""The curve of accuracy over all radii: read off stored distances, never above AutoAttack at the study's radius."""

import numpy as np
import pytest
from hand_made import QuickStore, add_evaluation, add_study, results_of

from reports.figures import curve as figure
from reports.figures.view import MissingResults, StudyView
from sweep.store.verdicts import pack_distances
from tests import records


@pytest.fixture
def store(tmp_path) -> QuickStore:
    return QuickStore(tmp_path / "store")


def test_an_image_counts_at_every_radius_below_its_distance():
    distances = np.array([0.0, 0.1, 0.1, np.inf], dtype=np.float32)
    assert figure.accuracies(distances, np.array([0.0, 0.05, 0.1, 0.2])).tolist() == [75.0, 75.0, 25.0, 25.0]


def test_what_autoattack_fooled_lies_within_the_radius(store):
    trials = add_study(store, "one", {"at": [0.5]})
    # AutoAttack leaves the first half of the images; the search for the nearest missed a fifth of the others.
    far = np.where(records.first_survive(0.7, 1000), 0.05, 0.02)
    add_evaluation(store, trials["at", 0], "curve", 0.7, clean=1.0, distances=pack_distances(far))
    view = StudyView(results_of(store), "one")
    (distances,) = view.methods[0].distances()
    assert figure.accuracies(distances, np.array([0.01, 8 / 255])).tolist() == [100.0, 50.0]
    drawn, caption = figure.draw(view)
    line = next(line for line in drawn.axes[0].lines if line.get_label() == "AT")
    assert min(line.get_ydata()) <= 50.0 and "AutoAttack" in caption
    marks = [line for line in drawn.axes[0].lines if line.get_marker() == "x"]
    assert [(float(mark.get_xdata()[0]), float(mark.get_ydata()[0])) for mark in marks] == [(8 / 255, 50.0)]


def test_without_distances_the_figure_says_how_to_get_some(store):
    add_study(store, "one", {"at": [0.5]})
    with pytest.raises(MissingResults) as missing:
        figure.draw(StudyView(results_of(store), "one"))
    assert "curve" in missing.value.command


def test_distances_that_contradict_the_verdicts_are_refused():
    images = {"images": 4, "clean": 1.0}
    records.evaluation_record(
        attack="curve", accuracy=0.5, distances=pack_distances(np.array([1, 1, 0.01, 0.02])), **images
    )
    for wrong, reason in (
        ([0.01, 1, 0.01, 0.02], "robust at a radius"),
        ([1, 1, 0.0, 0.02], "distance 0"),
        ([1, 1, np.nan, 0.02], "no number"),
        ([1, 1, 0.02], "bytes of distances"),
    ):
        with pytest.raises(ValueError, match=reason):
            records.evaluation_record(attack="curve", accuracy=0.5, distances=pack_distances(np.array(wrong)), **images)
