"""Seeds that sweep.decide added: left out of means and of every test that supposes a fixed number of them."""

import re

import pytest
from hand_made import QuickStore, add_study, results_of

from reports.analysis.added_seeds import added_seeds
from reports.analysis.claims.pairs import Pair, undecided
from reports.analysis.significance import study_tests
from reports.comparison.diff import differences
from reports.tables import document
from reports.tables.paper import paper_tables
from reports.tables.study import main_table, study_tables
from reports.tables.table import Key
from reports.terminal import result_text
from tests import records

# With three seeds nothing is decided, with five the same test would be.
ACCURACIES = {"at": [0.40, 0.42, 0.44, 0.39, 0.40], "sovr": [0.44, 0.45, 0.455, 0.45, 0.455]}
NOTE = (
    "Means and tests use the seeds planned by the study, 0-2; seeds added by sweep.decide are judged by its own test."
)


def store_with_decision(folder, name="own", added=(3, 4), accuracies=ACCURACIES, **changes):
    store = QuickStore(folder)
    trials = add_study(store, name, accuracies)
    pairs = tuple((trials["sovr", seed], trials["at", seed]) for seed in range(5))
    facts = {"study": name, "measure": "autoattack", "seeds": range(5), "trials": pairs, "differences": (4.0,) * 5}
    said = None if added is None else {"sovr": added, "at": added}
    store.write_record(records.decision_record(**{**facts, "added": said, **changes}))
    return store


def test_means_and_tests_take_the_planned_seeds(tmp_path):
    plain, marked = QuickStore(tmp_path / "plain"), store_with_decision(tmp_path / "marked")
    add_study(plain, "own", ACCURACIES)
    before, now = results_of(plain), results_of(marked)
    assert study_tests(before, "own")[0].rows[0].verdict == "better"
    (test,) = study_tests(now, "own")
    assert test.rows[0].verdict == "undecided" and test.reference_cell.sample.n == test.rows[0].cell.sample.n == 3
    assert len(test.rows[0].over_images.mcnemar) == 3
    assert not undecided(before, "own", Pair("sovr", "at")) and undecided(now, "own", Pair("sovr", "at"))
    at, sovr = main_table(now, "own").blocks[0].rows[0].cells
    assert at.sample.n == sovr.sample.n == at.planned == 3 and at.added == 2 and sovr.best and at.tied
    assert not main_table(before, "own").blocks[0].rows[0].cells[0].tied
    assert now.cell(Key("own", "at", "autoattack"), with_added=True).sample.n == 5


def test_added_seeds_that_turn_the_order_round_make_no_other_method_the_best(tmp_path):
    turned = {"at": [0.40, 0.42, 0.44, 0.39, 0.40], "sovr": [0.39, 0.41, 0.40, 0.55, 0.56]}
    store = store_with_decision(tmp_path, accuracies=turned)
    results = results_of(store)
    tables = study_tables(results, "own")
    at, sovr = tables[0].blocks[0].rows[0].cells
    assert at.best and not sovr.best
    assert "**AT** 42.0" in document.write(results, {"own": tables}, paper_tables(results))
    assert re.search(r"AT +42.0±2 .*the best", result_text(store, "own"))


def test_what_is_left_out_of_the_tests_is_said_beside_them(tmp_path):
    store = store_with_decision(tmp_path)
    results = results_of(store)
    tables = study_tables(results, "own")
    assert NOTE in tables[0].notes and NOTE in result_text(store, "own")
    assert document.write(results, {"own": tables}, paper_tables(results)).count(NOTE) > 1
    plain = QuickStore(tmp_path / "plain")
    add_study(plain, "own", ACCURACIES)
    assert NOTE not in result_text(plain, "own")


def test_no_seeds_are_advised_for_what_is_asked_seed_by_seed(tmp_path):
    ours, plain = results_of(store_with_decision(tmp_path / "asked")), QuickStore(tmp_path / "plain")
    add_study(plain, "own", {label: values[:3] for label, values in ACCURACIES.items()})
    advised = "SOVR against AT: if means and spreads stay"
    for results, expected in ((results_of(plain), True), (ours, False)):
        text = document.write(results, {"own": study_tables(results, "own")}, paper_tables(results))
        assert (advised in text) is expected


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
