"""Tables of a study in another norm, and of corrupted test images."""

import pytest

from reports.tables.corruptions import corruptions_table
from reports.tables.study import main_table, study_tables
from sweep.evaluation.scores import Score, Scores
from tests.reports.hand_made import QuickStore, add_evaluation, add_study, results_of
from trainers.attacks import parse


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of AT, whose accuracies are 40 and 50 % in linf, in L2 at two radii, and on fog at two severities."""
    store = QuickStore(tmp_path_factory.mktemp("norms"))
    trials = add_study(store, "small", {"at": [0.40, 0.50]}, norm="l2", epsilon="0.5")
    for (_, seed), trial in trials.items():
        for radius, accuracy in (("0.5", 0.60), ("1", 0.30)):
            add_evaluation(store, trial, parse("autoattack", norm="l2", epsilon=radius), accuracy + seed / 10)
        for severity in (1, 2):
            fog = parse(f"corruption-fog-{severity}")
            add_evaluation(store, trial, fog, 0.9 - severity / 10 - seed / 10, clean=None)
        add_evaluation(store, trial, parse("corruption-snow-1"), 0.5, clean=None)
    return results_of(store)


def values(cell) -> list[float]:
    return list(cell.sample.values)


def test_a_study_in_l2_shows_its_own_norm_and_says_so(results):
    table = main_table(results, "small")
    assert values(next(table.cells())) == pytest.approx([60.0, 70.0])
    assert "attacks L2, ε = 0.5." in table.notes[0]
    assert results.radius_text("small") == "ε = 0.5 (L2)"
    assert ("autoattack@linf", "8/255") in results.attacks("small", "best_test")


def test_radii_of_one_norm_are_not_mixed_with_those_of_another(results):
    tables = {table.name: table for table in study_tables(results, "small")}
    assert [row.header for row in tables["small_radii"].blocks[0].rows] == ["AutoAttack, ε = 0.5", "AutoAttack, ε = 1"]
    norms = tables["small_norms"]
    assert [column.header for column in norms.columns] == ["Linf, ε = 8/255", "L2, ε = 0.5", "Worst over l2, linf"]
    linf, l2, union = norms.blocks[0].rows[0].cells
    assert values(linf) == pytest.approx([40.0, 50.0]) and values(l2) == pytest.approx([60.0, 70.0])
    # Of seed 1 the survivors in linf start seven images later: the union is counted image by image.
    assert values(union) == pytest.approx([40.0, 50.0])


def test_each_corruption_is_a_mean_over_its_severities(results):
    table = corruptions_table(results, "small", ["at"])
    assert [row.header for block in table.blocks for row in block.rows] == ["Snow", "Fog", "Mean over 2 x 1.5"]
    snow, fog, mean = table.cells()
    assert values(snow) == pytest.approx([50, 50]) and values(fog) == pytest.approx([75, 65])
    assert values(mean) == pytest.approx([(80 + 70 + 50) / 3, (70 + 60 + 50) / 3])
    assert results.clean_accuracy("small", results.seeds("small", "at")[0].trial, "best_test") == pytest.approx(90.0)


def test_the_command_shows_corruptions_as_means():
    scores = {
        f"{name}{severity}": Score(f"corruption-{name}-{severity}", "linf", "0", accuracy, 10, {}, (), 0.0, "")
        for name, severity, accuracy in (("fog", 1, 0.8), ("fog", 2, 0.6), ("snow", 1, 0.4))
    }
    text = Scores("net", "outside", "store", scores, "8/255", "worst case, ε=8/255", None, []).text()
    assert "fog                               70.00 %  by severity: 80.00, 60.00" in text
    assert "mean over 3 corrupted test sets   60.00 %  of 10 images each" in text
