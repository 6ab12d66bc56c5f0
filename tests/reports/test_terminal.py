"""What a run ends with: numbers, n and verdicts in plain text; near-chance trainings are marked everywhere."""

import pytest
from hand_made import QuickStore, add_evaluation, add_study, results_of

from reports import write_reports
from reports.tables.study import main_table
from reports.terminal import result_text
from sweep.trials.standing import standings

AT, SOVR = [0.480, 0.482, 0.478], [0.504, 0.507, 0.501]


@pytest.fixture
def store(tmp_path):
    return QuickStore(tmp_path / "store")


def test_the_result_has_n_and_verdicts_in_a_few_narrow_lines(store):
    add_study(store, "digits", {"at": AT, "sovr": SOVR, "mart": [0.479, 0.483]}, title="Digits")
    text = result_text(store, "digits")
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line[:1].isupper()}
    assert lines["SOVR"][-2:] == ["3", "better"] and lines["AT"][-1] == "baseline"
    assert lines["MART"][-2:] == ["2", "undecided"]
    assert max(map(len, text.splitlines())) <= 120 and "Welch, two-sided, Holm" in text


def test_a_study_without_a_number_has_no_result(store):
    add_study(store, "digits", {"at": [0.5]}, statuses={("at", 0): "failed"})
    assert result_text(store, "digits") == ""


def test_a_training_near_chance_is_marked_in_tables_page_and_result(store, tmp_path):
    trials = add_study(store, "digits", {"at": AT, "mma": [0.1, 0.11, 0.48]}, clean=0.95, title="Digits")
    for seed in (0, 1):
        add_evaluation(store, trials["mma", seed], "clean", 0.12)
    cells = {cell.label: cell for cell in main_table(results_of(store), "digits").cells()}
    assert cells["mma"].near_chance == 2 and "≈" in cells["mma"].marks and "≈" not in cells["at"].marks
    assert "≈" in result_text(store, "digits")
    write_reports(store.uri, None, tmp_path / "out")
    for name in ("tables.md", "report.html"):
        text = (tmp_path / "out" / name).read_text("utf-8")
        assert "≈" in text and "near chance" in text
    assert r"$^\approx$" in (tmp_path / "out" / "tables.tex").read_text("utf-8")


def test_status_marks_it_too(store):
    from sweep.store.records.trial import TrialRecord

    trials = add_study(store, "digits", {"at": AT})
    for seed, clean in ((0, 0.12), (1, 0.95)):
        path = next(p for p in store.record_paths(TrialRecord) if trials["at", seed][:8] in p)
        record = store.record(TrialRecord, path)
        metrics = {"best_validation_validation_clean_accuracy": clean}
        store.write_record(record.model_copy(update={"metrics": metrics}))
    found = standings(store, "digits", lambda fault: None)[0]
    assert [one.near_chance for one in found.trials] == [True, False, False]
    assert "0 near chance" in found.text() and found.counts["done"] == 3
