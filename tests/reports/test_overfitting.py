"""Robust overfitting: best minus last checkpoint from the records that are there, with its interval and n."""

import pytest
import synthetic
from hand_made import QuickStore, add_diagnostics, add_evaluation, add_study, add_trial, results_of

from reports.analysis.overfitting import declines
from reports.figures import overfitting as figure
from reports.figures.view import MissingResults, StudyView
from reports.tables.study import main_table
from reports.tables.table import Row
from tests import records

CHECKPOINTS = {"best_test": {"epoch": 0, "sha256": "c" * 64}, "last": {"epoch": 1, "sha256": "c" * 64}}


@pytest.fixture
def store(tmp_path) -> QuickStore:
    return QuickStore(tmp_path / "store")


def curve(test: tuple[float, float] | None, held_out: tuple[float | None, float | None]) -> tuple[dict, ...]:
    return tuple(
        {
            "epoch": epoch,
            "test_pgd_accuracy": None if test is None else test[epoch],
            "validation_pgd_accuracy": held_out[epoch],
        }
        for epoch in (0, 1)
    )


def row(store: QuickStore) -> Row:
    return main_table(results_of(store), "one").blocks[0].rows[-1]


def test_the_gap_of_both_evaluated_checkpoints_has_students_interval_and_n(store):
    trials = add_study(store, "one", {"at": [0.50, 0.52, 0.54], "sovr": [0.50, 0.52, None]})
    for seed, last in enumerate([0.47, 0.50, 0.50]):
        add_evaluation(store, trials["at", seed], "autoattack", last, checkpoint="last")
    add_evaluation(store, trials["sovr", 0], "autoattack", 0.50, checkpoint="last")
    table = main_table(results_of(store), "one")
    found = table.blocks[0].rows[-1]
    at, sovr = found.cells
    # 3, 2 and 4 points: 3 ± t(2; 0.975) / sqrt(3)
    assert found.header == "AutoAttack, best − last" and at.text == "3.0 [0.5, 5.5]" and at.seeds == (0, 1, 2)
    assert sovr.text == "0.0" and sovr.shown_n == 1 and sovr.planned == 3
    assert not any(cell.best or cell.tied for cell in found.cells)
    note = next(note for note in table.notes if "best − last" in note)
    assert "n = 1 to 3" in note and "chosen on these very images" in note


def test_numbers_over_different_images_are_not_subtracted(store):
    trials = add_study(store, "one", {"at": [0.50]})
    add_evaluation(store, trials["at", 0], "autoattack", 0.4, checkpoint="last", images=500)
    assert declines(results_of(store), "one") == []


def test_diagnostics_of_both_checkpoints_give_the_gap_under_pgd(store):
    trials = add_study(store, "one", {"at": [0.5, 0.5]}, checkpoint="best_validation")
    for seed, last in enumerate((0.60, 0.58)):
        for checkpoint, accuracy in (("best_validation", 0.62), ("last", last)):
            add_diagnostics(store, trials["at", seed], {"test_pgd_accuracy": accuracy}, checkpoint=checkpoint)
    (found,) = declines(results_of(store), "one")
    assert (found.way, found.images, found.flattered) == ("diagnostics", "test images", False)
    assert found.sample("at").values == pytest.approx((2.0, 4.0)) and "chance" not in found.note


@pytest.mark.parametrize(
    ("test", "held_out", "images", "gap", "flattered"),
    [
        ((0.60, 0.55), (0.5, 0.49), "held-out images", 1.0, False),
        ((0.60, 0.55), (None, None), "test images", 5.0, True),
        ((0.60, 0.55), (0.5, float("nan")), "test images", 5.0, True),
    ],
    ids=["by other images", "by the same images", "a hole"],
)
def test_curves_are_read_on_images_that_did_not_choose_where_there_are_such(
    store, test, held_out, images, gap, flattered
):
    trials = add_study(store, "one", {"at": [0.5]})
    config = records.trial_config(dataset="cifar10")
    clean = tuple(None if value != value else value for value in held_out)
    add_trial(store, trials["at", 0], config=config, curve=curve(test, clean), checkpoints=CHECKPOINTS)
    (found,) = declines(results_of(store), "one")
    assert (found.way, found.images, found.flattered) == ("curve", images, flattered)
    assert found.sample("at").mean == pytest.approx(gap)
    assert row(store).header == "PGD, best − last" and row(store).cells[0].text == f"{gap:.1f}"


def test_a_study_without_both_checkpoints_has_no_row_and_says_so_instead_of_a_figure(store):
    add_study(store, "one", {"at": [0.5]})
    results = results_of(store)
    assert row(store).header == "Clean"
    with pytest.raises(MissingResults, match="best and its last checkpoint"):
        figure.draw(StudyView(results, "one"))


def test_the_figure_shows_the_tables_numbers_and_every_seed(tmp_path):
    chosen = {label: synthetic.METHODS[label] for label in ("st", "at", "sovr")}
    synthetic.write_store(tmp_path, methods=chosen, diagnostics=False, components=False, search=False)
    results = results_of(tmp_path)
    picture, caption = figure.draw(StudyView(results, "synthetic"))
    (axis,) = picture.axes
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert sorted(names) == ["AT (n=3)", "SOVR (n=3)"] and "is chance" in caption
    (decline,) = declines(results, "synthetic")
    means = [container.lines[0].get_xdata()[0] for container in axis.containers]
    assert means == sorted(decline.sample(label).mean for label in ("at", "sovr"))
    assert sum(len(line.get_xdata()) for line in axis.lines if line.get_marker() == "o") == 6
    assert figure.draw_narrow(StudyView(results, "synthetic")).get_figwidth() < picture.get_figwidth()
