"""A column with the very trainings of another, as of a search that chose the study's own values: shown, tested once."""

import pytest
from hand_made import QuickStore, add_study, results_of

from reports import write_reports
from reports.analysis.significance import study_tests
from reports.analysis.statistics import compare_with_best
from reports.page.page import summary, write_page
from reports.page.trials import study_trials
from reports.tables import document
from reports.tables.study import study_tables
from reports.terminal import result_text
from sweep.store.records.manifest import PlannedSearch

AT, SOVR, EWAT = [0.480, 0.482, 0.478], [0.494, 0.497, 0.491], [0.475, 0.482, 0.489]
OWN = "SOVR, searched: the search chose the study's own values: these are the trainings of SOVR, tested once."


@pytest.fixture
def plain(tmp_path):
    store = QuickStore(tmp_path / "plain")
    add_study(store, "digits", {"at": AT, "sovr": SOVR, "ewat": EWAT}, hyperparameters={"sovr": {"lam": 0.7}})
    return store


@pytest.fixture
def store(tmp_path):
    store = QuickStore(tmp_path / "store")
    add_study(store, "digits", {"at": AT, "sovr": SOVR, "ewat": EWAT})
    add_searched(store, "sovr", chose="sovr")
    return store


def add_searched(store, label, chose):
    """The column of a search that chose what another label has, or whose search is not done."""
    manifest = store.manifest("digits")
    names = {"label": f"{label}_searched", "display": f"{label.upper()}, searched"}
    cells = [cell for cell in manifest.cells if cell.label == (chose or label)]
    new = [cell.model_copy(update=names if chose else {**names, "trial": None}) for cell in cells]
    searches = (*manifest.searches, PlannedSearch(label=f"{label}_searched", id=f"{label}-0123456789abcdef"))
    store.write_record(manifest.model_copy(update={"cells": (*manifest.cells, *new), "searches": searches}))


def test_they_are_tested_and_counted_as_if_the_column_were_not_there(plain, store):
    ours, without = results_of(store), results_of(plain)
    assert list(ours.labels["digits"]) == ["at", "ewat", "sovr", "sovr_searched"]
    for everyone in (False, True):
        found, expected = (study_tests(one, "digits", everyone=everyone) for one in (ours, without))
        assert [(one.reference, one.rule, one.can_find) for one in found] == [
            (one.reference, one.rule, one.can_find) for one in expected
        ]
        assert [[(row.label, row.comparison) for row in one.rows] for one in found] == [
            [(row.label, row.comparison) for row in one.rows] for one in expected
        ]
    assert ours.trainings("digits") == without.trainings("digits")


def test_the_table_shows_its_number_as_that_of_the_other(plain, store):
    ours, without = study_tables(results_of(store), "digits")[0], study_tables(results_of(plain), "digits")[0]
    place = [column.header for column in ours.columns].index("SOVR, searched")
    for row, expected in zip(ours.blocks[0].rows, without.blocks[0].rows, strict=True):
        cells = {cell.label: cell for cell in row.cells}
        assert {name: one for name, one in cells.items() if name != "sovr_searched"} == {
            cell.label: cell for cell in expected.cells
        }
        twin, own = row.cells[place], cells["sovr"]
        assert (twin.text, twin.best, twin.tied, twin.against_best) == (own.text, own.best, own.tied, own.against_best)
    robust = [cell for cell in ours.blocks[0].rows[0].cells if not cell.same_as]
    assert [cell.against_best for cell in robust] == compare_with_best([cell.sample for cell in robust], 2)
    assert OWN in ours.notes


def test_one_winner_is_named_and_one_training_counted_everywhere(store, tmp_path):
    results = results_of(store)
    tables = study_tables(results, "digits")
    tests = {"digits": study_tests(results, "digits")}
    assert "**SOVR** 49.4±0.3" in document.glance(results, {"digits": tables}, tests)
    assert "9/9" in document.glance(results, {"digits": tables}, tests)
    outcome = summary(results, "digits", tables[0], tests["digits"])
    assert [name for name, _ in outcome.winners] == ["SOVR"] and outcome.facts.planned == 9
    write_reports(store.uri, None, tmp_path / "out", figures=False)
    section = (tmp_path / "out" / "tables.md").read_text("utf-8").partition("How sure is that?")[2]
    page = write_page(results, tables, [], tmp_path / "out")
    assert "| SOVR, searched |" not in section.partition("<sub>")[0] and "sovr_searched" not in section
    assert OWN in section and OWN.replace("'", "&#39;") in page.read_text("utf-8")
    line = next(line for line in result_text(store, "digits").splitlines() if line.startswith("SOVR, searched"))
    assert line.endswith("as SOVR")


def test_a_search_that_is_not_done_or_chose_another_labels_values_is_named_as_what_it_is(plain, tmp_path):
    add_searched(plain, "sovr", chose=None)
    results = results_of(plain)
    assert results.same_trainings("digits", "sovr_searched") == "" and len(results.trainings("digits")) == 12
    trained = document.runs_text(results, "digits").splitlines()
    line = next(line for line in trained if line.startswith("| SOVR, searched"))
    assert "| chosen by the search |" in line and "0.7" not in line and "3 waiting" in line
    shown = next(one for one in study_trials(results, "digits", 0) if one.label == "sovr_searched")
    assert shown.hyperparameters == "hyperparameters chosen by the search" and "0.7" not in shown.config
    store = QuickStore(tmp_path / "other")
    add_study(store, "digits", {"at": AT, "sovr": SOVR, "zovr": EWAT})
    add_searched(store, "sovr", chose="zovr")  # what the study itself asks for stands for both, wherever it stands
    results = results_of(store)
    assert results.same_trainings("digits", "sovr_searched") == "zovr"
    assert results.same_trainings("digits", "zovr") == ""
    notes = study_tables(results, "digits")[0].notes
    assert "SOVR, searched: these are the trainings of ZOVR, tested once." in notes


def test_further_seeds_of_one_of_them_do_not_make_it_another_method(tmp_path):
    store = QuickStore(tmp_path)
    add_study(store, "digits", {"at": AT, "sovr": [*SOVR, 0.49, 0.50], "ewat": EWAT})
    add_searched(store, "sovr", chose="sovr")
    manifest = store.manifest("digits")
    cells = tuple(cell for cell in manifest.cells if cell.label != "sovr_searched" or cell.seed < 3)
    store.write_record(manifest.model_copy(update={"cells": cells}))
    results = results_of(store)
    assert results.same_trainings("digits", "sovr_searched") == "sovr" and len(results.trainings("digits")) == 11
    assert [row.label for row in study_tests(results, "digits")[0].rows] == ["ewat", "sovr"]
