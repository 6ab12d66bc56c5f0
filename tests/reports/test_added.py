"""Seeds that sweep.decide added: shown, and left out of every test that supposes a fixed number of them."""

import pytest
from hand_made import QuickStore, add_study, results_of

from reports.added import added_seeds
from reports.claims.pairs import Pair, undecided
from reports.diff import differences
from reports.significance import study_tests
from reports.tables import document
from reports.tables.paper import paper_tables
from reports.tables.study import main_table, study_tables
from reports.terminal import result_text
from tests import records

# With three seeds nothing is decided, with five the same test would be.
ACCURACIES = {"at": [0.40, 0.42, 0.44, 0.39, 0.40], "sovr": [0.44, 0.45, 0.455, 0.45, 0.455]}
NOTE = "Tests use the seeds planned by the study, 0-2; seeds added by sweep.decide are judged by its own test."


def store_with_decision(folder, name="own", added=(3, 4), **changes):
    store = QuickStore(folder)
    trials = add_study(store, name, ACCURACIES)
    pairs = tuple((trials["sovr", seed], trials["at", seed]) for seed in range(5))
    facts = {"study": name, "measure": "autoattack", "seeds": range(5), "trials": pairs, "differences": (4.0,) * 5}
    said = None if added is None else {"sovr": added, "at": added}
    store.write_record(records.decision_record(**{**facts, "added": said, **changes}))
    return store


def test_cells_show_all_seeds_and_tests_take_the_planned_ones(tmp_path):
    plain, marked = QuickStore(tmp_path / "plain"), store_with_decision(tmp_path / "marked")
    add_study(plain, "own", ACCURACIES)
    before, now = results_of(plain), results_of(marked)
    assert study_tests(before, "own")[0].rows[0].verdict == "better"
    (test,) = study_tests(now, "own")
    assert test.rows[0].verdict == "undecided" and test.reference_cell.sample.n == test.rows[0].cell.sample.n == 3
    assert len(test.rows[0].over_images.mcnemar) == 3
    assert not undecided(before, "own", Pair("sovr", "at")) and undecided(now, "own", Pair("sovr", "at"))
    at, sovr = main_table(now, "own").blocks[0].rows[0].cells
    assert at.sample.n == sovr.sample.n == 5 and sovr.best and at.tied
    assert not main_table(before, "own").blocks[0].rows[0].cells[0].tied


def test_what_is_left_out_of_the_tests_is_said_beside_them(tmp_path):
    store = store_with_decision(tmp_path)
    results = results_of(store)
    tables = study_tables(results, "own")
    assert NOTE in tables[0].notes and NOTE in result_text(store, "own")
    assert document.write(results, {"own": tables}, paper_tables(results)).count(NOTE) > 1
    plain = QuickStore(tmp_path / "plain")
    add_study(plain, "own", ACCURACIES)
    assert NOTE not in result_text(plain, "own")


def test_the_comparison_with_the_paper_takes_planned_seeds(tmp_path):
    results = results_of(store_with_decision(tmp_path, "cifar10_rn18"))
    found = {one.printed.key.label: one.cell for one in differences(results) if one.cell.sample is not None}
    assert found["sovr"].sample.n == found["at"].sample.n == 3


@pytest.mark.parametrize(("study", "left"), [("cifar10_rn18", {3, 4}), ("own", {2, 3, 4})])
def test_an_older_decision_added_what_is_beyond_the_shipped_studys_seeds_or_the_first_look(tmp_path, study, left):
    store = store_with_decision(tmp_path, study, added=None)
    results = results_of(store)
    assert results.added(study, "at") == results.added(study, "sovr") == left and not results.added(study, "trades")
    other = dict.fromkeys(range(5), "f" * 64)  # the decision is about other configurations
    assert added_seeds(results.data.decisions, study, "at", other) == set()
