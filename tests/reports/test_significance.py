"""What a study's tests say: which p decides, what n can find, and what lost seeds keep open."""

import pytest
from hand_made import QuickStore, add_evaluation, add_study, results_of
from scipy import stats

from reports.analysis.power import detectable_difference, t3_critical, welch_critical
from reports.analysis.significance import advice, study_tests
from reports.analysis.statistics import compare_family, compare_with_best
from reports.tables import document
from reports.tables.study import study_tables

AT, SOVR, EWAT = [0.480, 0.482, 0.478], [0.494, 0.497, 0.491], [0.475, 0.482, 0.489]


@pytest.fixture
def store(tmp_path):
    return QuickStore(tmp_path / "store")


def test_a_fixed_baseline_is_tested_by_welch_after_holm_and_the_best_by_t3(store):
    add_study(store, "digits", {"at": AT, "sovr": SOVR, "ewat": EWAT})
    against_at, against_best = study_tests(results_of(store), "digits")
    assert (against_at.reference, against_at.fixed) == ("at", True)
    assert (against_best.reference, against_best.fixed) == ("sovr", False)
    samples = [against_at.reference_cell.sample, *(row.cell.sample for row in against_at.rows)]
    assert [row.comparison.deciding for row in against_at.rows] == [
        one.welch_holm for one in compare_family(samples, 0)[1:]
    ]
    samples = [against_best.reference_cell.sample, *(row.cell.sample for row in against_best.rows)]
    assert [row.comparison.deciding for row in against_best.rows] == [
        one.t3 for one in compare_with_best(samples, 0)[1:]
    ]


def test_a_baseline_that_is_also_the_best_stays_a_fixed_reference(store):
    add_study(store, "digits", {"at": SOVR, "sovr": AT, "ewat": EWAT})
    (only,) = study_tests(results_of(store), "digits")
    assert only.is_best and only.fixed and "Holm" in only.rule


def test_the_paired_test_is_over_shared_seeds_and_decides_nothing(store):
    add_study(store, "digits", {"at": [*AT, 0.40], "sovr": [0.485, 0.487, 0.484, None]})
    (test,) = study_tests(results_of(store), "digits")
    (row,) = test.rows
    assert row.paired == pytest.approx(stats.ttest_rel([48.5, 48.7, 48.4], [48.0, 48.2, 47.8]).pvalue)
    assert row.paired < 0.05 and row.verdict == "undecided"


def test_what_n_can_find_is_stated_at_the_level_of_the_verdict(store):
    add_study(store, "digits", {"at": AT, "sovr": SOVR, "ewat": EWAT})
    against_at, against_best = study_tests(results_of(store), "digits")
    base = against_at.reference_cell.sample
    expected = sorted(detectable_difference(row.cell.sample, base, welch_critical(0.05 / 2)) for row in against_at.rows)
    assert f"must be about {expected[1]:.1f} points" in against_at.can_find
    assert "Welch after Holm over 2 comparisons" in against_at.can_find
    best = against_best.reference_cell.sample
    by_t3 = [detectable_difference(row.cell.sample, best, t3_critical(3)) for row in against_best.rows]
    assert [row.detectable for row in against_best.rows] == by_t3
    assert "T3 among 3 methods" in against_best.can_find


def test_what_looks_better_with_a_lost_seed_stays_undecided_and_is_marked(store):
    statuses = {("sovr", 3): "collapsed", ("ewat", 3): "failed"}
    accuracies = {"at": [*AT, 0.479], "sovr": [*SOVR, 0.1], "ewat": [0.40, 0.402, 0.398, 0.1]}
    add_study(store, "digits", accuracies, statuses=statuses)
    test = study_tests(results_of(store), "digits")[0]
    rows = {row.label: row for row in test.rows}
    assert rows["sovr"].comparison.significant and rows["sovr"].verdict == "undecided"
    assert rows["ewat"].verdict == "worse"  # what was lost cannot have made it look worse than it is
    text = document.tests_text(test)
    assert "SOVR‡ (n=3)" in text and "EWAT§ (n=3)" in text


def test_n_is_named_only_where_all_have_it(store):
    add_study(store, "digits", {"at": [*AT, 0.481], "sovr": SOVR, "ewat": EWAT})
    against_at, against_best = study_tests(results_of(store), "digits")
    assert against_at.can_find.startswith("With the present seeds (n = 4 of AT against 3) and")
    assert against_best.can_find.startswith("With the present seeds (n = 3 of SOVR against 3 to 4) and")
    add_study(store, "digits", {"at": AT, "sovr": SOVR, "ewat": EWAT})
    assert study_tests(results_of(store), "digits")[0].can_find.startswith("With n = 3 and")


def test_no_further_seeds_are_advised_where_lost_ones_leave_it_open(store):
    accuracies = {"at": AT, "sovr": [0.48, 0.50, 0.49, 0.1], "mart": [0.46, 0.47, 0.475], "mail": [0.43, 0.47, 0.49]}
    add_study(store, "digits", accuracies, statuses={("sovr", 3): "collapsed", ("mail", 2): "failed"})
    results = results_of(store)
    against_at, against_best = study_tests(results, "digits")
    told = {row.label: advice(results.data, against_at, row) for row in against_at.rows}
    assert told["sovr"] == (
        "SOVR against AT: undecided because 1 of SOVR's seeds collapsed; while SOVR looks better no number of further "
        "seeds changes that."
    )
    assert "sweep.decide --study digits 'at > mart'" in told["mart"]
    assert told["mail"].endswith("the test that allows to look after every seed does not allow for lost ones.")
    assert all("1 of SOVR's seeds collapsed" in advice(results.data, against_best, row) for row in against_best.rows)


def test_a_significant_lead_with_lost_seeds_is_named_as_what_stays_open(store):
    add_study(store, "digits", {"at": AT, "sovr": [*SOVR, 0.1]}, statuses={("sovr", 3): "failed"})
    results = results_of(store)
    (test,) = study_tests(results, "digits")
    (row,) = test.rows
    assert row.comparison.significant and row.verdict == "undecided"
    assert advice(results.data, test, row).endswith("changes that, running the failed ones again does.")


def test_a_best_with_lost_seeds_is_marked_in_the_overview_and_decides_nothing(store):
    accuracies = {"at": AT, "sovr": [*SOVR, 0.1], "mart": [0.40, 0.41, 0.405]}
    add_study(store, "digits", accuracies, statuses={("sovr", 3): "collapsed"})
    results = results_of(store)
    tables = {"digits": study_tables(results, "digits")}
    shown = document.glance(results, tables, {"digits": study_tests(results, "digits")})
    assert "**SOVR** 49.4±0.3‡" in shown and "+1.4 points, undecided: lost seeds" in shown
    robust = tables["digits"][0].blocks[0].rows[0].cells
    others = {cell.label: cell for cell in robust if not cell.best}
    assert others["mart"].against_best.significant and all(cell.tied for cell in others.values())
    assert any("nothing is decided" in note for note in tables["digits"][0].notes)


def test_a_training_near_chance_is_marked_in_the_tests(store):
    trials = add_study(store, "digits", {"at": AT, "sovr": SOVR}, clean=0.9)
    for seed in range(3):
        add_evaluation(store, trials["sovr", seed], "clean", 0.12, clean=0.12)
    (test,) = study_tests(results_of(store), "digits")
    assert [row.name for row in test.rows] == ["SOVR≈"]


def test_everyone_can_be_the_reference_and_only_the_baseline_is_tested_by_holm(tmp_path):
    store = QuickStore(tmp_path)
    accuracies: dict[str, list[float | None]] = {
        "at": [0.480, 0.482, 0.478],
        "sovr": [0.494, 0.497, 0.491],
        "mail": [0.40, 0.41, 0.42],
    }
    add_study(store, "digits", accuracies)
    results = results_of(store)
    tests = study_tests(results, "digits", everyone=True)
    assert [(one.reference, one.fixed, one.is_best) for one in tests] == [
        ("at", True, False),
        ("sovr", False, True),
        ("mail", False, False),
    ]
    assert tests[:2] == study_tests(results, "digits")
    against_mail, against_best = tests[2], tests[1]
    assert all(row.comparison.t3 is not None and row.comparison.welch_holm is None for row in against_mail.rows)
    sovr = next(row for row in against_mail.rows if row.label == "sovr")
    mail = next(row for row in against_best.rows if row.label == "mail")
    assert sovr.comparison.difference == -mail.comparison.difference and sovr.comparison.t3 == mail.comparison.t3
    assert against_mail.can_find is None and sovr.needed is None
