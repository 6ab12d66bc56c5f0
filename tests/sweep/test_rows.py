"""A model from elsewhere as a row of a study: in every table, the tests, the page and the export, and after a merge."""

import shutil

import pandas as pd
import pytest
import torch

from reports.analysis.results import Results
from reports.analysis.significance import study_tests
from reports.comparison.diff import text as difference_text
from reports.comparison.explanation.text import text as explanation
from reports.export import export
from reports.page.page import write_page
from reports.tables.study import study_tables
from reports.writing import write
from sweep import cli
from sweep.errors import UserError
from sweep.evaluation.checkpoints import data_set
from sweep.store.manifests import write_manifest
from sweep.store.merging import Merge
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.row import RowRecord
from sweep.store.records.trial import TrialRecord
from sweep.studies.model import Study
from sweep.trials import cells as planned
from tests.sweep.stored import evaluation, write_trial
from trainers import models

SETTINGS = (
    *("evaluation.suite=null", "evaluation.attacks=[clean,pgd-3,pgd-3@l2:0.5]", "evaluation.images=10"),
    *("evaluation.diagnostics=false", "search.sovr.pin=true"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A store with a study of two methods and two seeds, and weights of another network."""
    folder = tmp_path_factory.mktemp("rows")
    store, study = open_store(folder / "store"), Study.load("digits", SETTINGS, methods=["at", "sovr"], seeds=[0, 1])
    cells = planned.expand(study)
    for number, cell in enumerate(cells):
        write_trial(store, cell)
        for attack in range(3):
            store.write_record(evaluation(study, cell, attack=attack, right=9 - 2 * attack - number % 2))
    write_manifest(store, planned.manifest(study, cells))
    torch.manual_seed(0)
    torch.save(models.build("small_cnn", 10, shape=(1, 8, 8)).state_dict(), folder / "net.pt")
    torch.manual_seed(1)
    torch.save(models.build("small_cnn", 10, shape=(1, 8, 8)).state_dict(), folder / "other.pt")
    evaluate(folder, "--as", "Madry CNN")
    return folder


def evaluate(folder, *words, weights="net.pt", store="store", code=0):
    arguments = ["evaluate", "--checkpoint", folder / weights, "--model", "small_cnn", "--study", "digits"]
    with pytest.raises(SystemExit) as caught:
        cli.main([*map(str, arguments), "--store", str(folder / store), *map(str, words)])
    assert caught.value.code == code


@pytest.fixture(scope="module")
def results(place):
    return Results.read(place / "store")


def test_the_study_s_own_attacks_are_run_on_its_images(place):
    paths = [
        path
        for path in open_store(place / "store").paths("evaluations")
        if "/outside-" in path and path.endswith(".json")
    ]
    assert sorted(path.split("/")[3].rpartition("-")[0] for path in paths) == ["clean", "pgd-3-0.2", "pgd-3-l2-0.5"]
    (record,) = open_store(place / "store").records(RowRecord, ["rows/digits/Madry_CNN.json"], None)
    assert record.display == "Madry CNN" and record.subject.startswith("outside-")


def test_attacks_of_one_s_own_are_in_the_study_s_ball_on_its_images(place, tmp_path):
    shutil.copytree(place, tmp_path / "place")
    evaluate(tmp_path / "place", "--as", "Other", "--attacks", "pgd-2", weights="other.pt")
    store = open_store(tmp_path / "place" / "store")
    records = store.records(EvaluationRecord, store.record_paths(EvaluationRecord))
    asked = planned.evaluation_attacks(Study.load("digits", SETTINGS))[1]
    (found,) = [record.attack for record in records if record.attack["name"] == "pgd-2"]
    assert found["epsilon"] == asked.epsilon == "0.2" and found["images"] == list(asked.images)


def test_one_on_other_images_than_the_study_s_trials_is_refused(place, tmp_path, capsys):
    shutil.copytree(place, tmp_path / "place")
    store = open_store(tmp_path / "place" / "store")
    paths = store.record_paths(TrialRecord)
    here = data_set("digits", None).sha256
    for sha256, code in ((here, 0), ("f" * 64, 2)):
        for record in store.records(TrialRecord, paths[:1]):
            store.write_record(record.model_copy(update={"data": {"digits": sha256}}))
        evaluate(tmp_path / "place", "--as", f"Other {code}", "--attacks", "clean", weights="other.pt", code=code)
    said = capsys.readouterr().err
    assert f"'digits' in data is not the one that trial {paths[0].split('/')[1]} was trained on" in said
    assert f"expects sha256 {'f' * 16}…, this one has {here[:16]}…" in said and "leave --study and --as out" in said
    assert store.paths("rows") == ["rows/digits/Madry_CNN.json", "rows/digits/Other_0.json"]


def test_it_stands_in_every_table_with_n_one(results):
    tables = {table.name: table for table in study_tables(results, "digits")}
    assert set(tables) >= {"digits_main", "digits_norms"}
    for name in ("digits_main", "digits_norms"):
        cells = [
            cell
            for cell in tables[name].cells()
            if cell.label == "Madry_CNN" and not cell.key.measure.startswith("overfitting")
        ]
        assert cells and all(cell.sample is not None and cell.sample.n == 1 for cell in cells), name
        assert all(cell.shown_n == 1 for cell in cells)
    assert any("Madry CNN: from elsewhere, one model (n = 1)" in note for note in tables["digits_main"].notes)
    assert "digits_checkpoints" not in tables


def test_several_norms_have_a_column_of_what_withstands_all(results):
    table = next(one for one in study_tables(results, "digits") if one.name == "digits_norms")
    assert [column.header for column in table.columns] == ["Linf, ε = 0.2", "L2, ε = 0.5", "Worst over l2, linf"]
    at = next(row for row in table.blocks[0].rows if row.cells[0].label == "at")
    assert [cell.sample.mean for cell in at.cells] == pytest.approx([65.0, 45.0, 45.0])


def test_tests_say_that_one_model_cannot_be_tested(results):
    (test, *_) = study_tests(results, "digits", "pgd-3")
    row = next(one for one in test.rows if one.label == "Madry_CNN")
    assert row.comparison.welch is None and row.verdict == row.comparison.undefined
    assert row.name == "Madry CNN≈ (n=1)" and row.over_images is not None


def test_document_page_and_export_have_it(place, results, tmp_path):
    written = write(place / "store", None, tmp_path / "out", figures=False)
    assert written and "Madry CNN" in (tmp_path / "out" / "tables.md").read_text()
    page = write_page(results, study_tables(results, "digits"), [], tmp_path / "out")
    assert "Madry CNN" in page.read_text()
    assert difference_text(results)
    with pytest.raises(UserError, match="the paper prints no pgd-3 of Madry_CNN"):
        explanation(results, "digits/Madry_CNN/pgd-3")
    export(place / "store", None, tmp_path / "export")
    frame = pd.read_csv(tmp_path / "export" / "results.csv")
    mine = frame[frame["label"] == "Madry_CNN"]
    assert len(mine) == 3 and set(mine["method"]) == {"outside"} and mine["accuracy"].notna().all()
    assert set(mine["norm"]) == {"linf", "l2"} and mine["epsilon_value"].max() == 0.5


def test_a_merge_keeps_it_and_refuses_another_model_of_the_same_name(place):
    merged = open_store(place / "merged")
    Merge(merged, [open_store(place / "store")]).write()
    assert "Madry_CNN" in Results.read(place / "merged").labels["digits"]
    other = open_store(place / "elsewhere")
    for path in open_store(place / "store").paths("studies"):
        other.write(path, open_store(place / "store").read(path))
    evaluate(place, "--as", "Madry CNN", "--attacks", "clean", weights="other.pt", store="elsewhere")
    with pytest.raises(UserError, match="two models are called 'Madry_CNN'; evaluate one again with another --as"):
        Merge(merged, [other])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--as", "at"), "has trials of its own called 'at'"),
        (("--as", "X", "--dataset", "mnist"), "is on digits, not on mnist"),
        (("--as", " "), "needs both its name and the model's"),
    ],
)
def test_mistakes_are_messages(place, capsys, words, message):
    evaluate(place, *words, code=2)
    assert message in capsys.readouterr().err
