"""Records become frames; what is broken or foreign is listed and left out."""

import subprocess
import sys

import numpy as np
import pytest
import synthetic
from hand_made import QuickStore, add_diagnostics, add_evaluation, add_study, add_trial, results_of, trial_hash

from reports import write_reports
from reports.figures import style
from reports.figures.draw import draw_all
from reports.page.page import write_page
from reports.store.load import broken_manifests, load
from sweep.errors import UserError
from sweep.store import layout
from sweep.store.encoding import decode, encode
from sweep.store.folder import FolderStore
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.manifest import PlannedCell
from sweep.studies.model import Study
from sweep.trials import cells as plan
from tests.records import shard_record, trial_record


@pytest.fixture
def store(tmp_path):
    return QuickStore(tmp_path)


def test_every_planned_cell_is_a_row_whether_run_or_not(store):
    add_study(store, "one", {"at": [0.48, None], "sovr": [0.5, 0.4]}, statuses={("sovr", 1): "collapsed"})
    cells = load(store).cells
    assert list(cells["status"]) == ["done", "missing", "done", "collapsed"]
    assert list(cells["seed"]) == [0, 1, 0, 1]
    last = {name: value for name, value in cells["last_epoch"].iloc[0].items() if value is not None}
    assert last == {"epoch": 1, "train_margin": -2.0}
    assert cells["reason"].iloc[3] == "loss became NaN"


def test_a_cell_that_waits_for_its_search_has_no_trial(store):
    add_study(store, "one", {"at": [0.48]}, cells=[PlannedCell(label="sovr", method="sovr", seed=0)])
    assert list(load(store).cells["status"]) == ["waiting"]


def test_evaluations_hold_accuracies_and_read_verdicts_when_asked(store):
    trials = add_study(store, "one", {"at": [0.48]})
    data = load(store)
    row = data.evaluations[data.evaluations["attack"] == "autoattack"].iloc[0]
    assert (row["accuracy"], row["clean_accuracy"], row["epsilon"], row["images"]) == (0.48, 0.9, "8/255", 1000)
    verdicts = data.verdicts(row["path"])
    assert verdicts.dtype == bool and verdicts.sum() == 480 and verdicts.size == 1000
    assert len(data.curve(trials["at", 0][:16])) == 2
    assert data.curve("0" * 16).empty


def test_broken_and_foreign_records_are_listed_and_left_out(store):
    trials = add_study(store, "one", {"at": [0.48, 0.49, 0.5], "sovr": [0.5, 0.5, 0.5]})
    root = store.root
    folder = {key: trial[:16] for key, trial in trials.items()}
    # Cut off, edited, not JSON at all, of another kind, in a folder that is no trial's, and of another trial.
    cut = root / "trials" / folder["at", 0] / "record.json"
    cut.write_bytes(cut.read_bytes()[:50])
    edited = root / "trials" / folder["at", 1] / "record.json"
    edited.write_text(edited.read_text().replace('"status":"done"', '"status":"nice"'))
    evaluations = root / "evaluations" / folder["sovr", 0] / "best_test"
    (evaluations / "notes-1.json").write_bytes(b"\xff\xfe\x00")
    store.write(f"evaluations/{folder['sovr', 0]}/best_test/other-2.json", encode({"kind": "shopping list"}))
    (root / "trials" / "my notes").mkdir()
    (root / "trials" / "my notes" / "record.json").write_text("{}")
    store.write(f"trials/{folder['sovr', 2]}/record.json", trial_record(trial_hash("x")).encoded())
    (root / "studies" / "bad.json").write_text("[]")
    data = load(store)
    assert sorted(data.cells["status"]) == ["done", "done", "done", "missing", "missing", "missing"]
    paths = {problem.path: problem.reason for problem in data.problems}
    assert len(paths) == 7
    assert "belongs at trials/" in paths[f"trials/{folder['sovr', 2]}/record.json"]
    assert "foreign" in paths["trials/my notes/record.json"]
    assert "foreign" in paths[f"evaluations/{folder['sovr', 0]}/best_test/other-2.json"]
    assert set(data.manifests) == {"one"}


@pytest.mark.parametrize(
    "change",
    [
        {"accuracy": 0.99},
        {"images": 999},
        {"images": 0},
        {"verdicts": "no base64!"},
        {"verdicts": None},
        {"attack": "autoattack"},
        {"attack": {"epsilon": "8/255"}},
        {"checkpoint": "last"},
        {"format": 2},
    ],
)
def test_a_nonsensical_evaluation_is_a_problem_not_a_crash(store, change):
    trials = add_study(store, "one", {"at": [0.48]})
    path = add_evaluation(store, trials["at", 0], "square", 0.5)
    store.write(path, encode({**decode(path, store.read(path)), **change}))
    data = load(store)
    assert [problem.path for problem in data.problems] == [path]
    assert "square" not in set(data.evaluations["attack"])


def test_shards_in_progress_are_not_evaluations(store):
    trials = add_study(store, "one", {"at": [0.48]})
    folder = f"evaluations/{trials['at', 0][:16]}/best_test/autoattack-8_255-x"
    store.write_record(shard_record(folder, 0, 100))
    data = load(store)
    assert not data.problems and len(data.evaluations) == 3


def test_only_the_named_studies_are_loaded(store):
    add_study(store, "one", {"at": [0.48]})
    add_study(store, "two", {"at": [0.48]})
    assert set(load(store, ["two"]).cells["study"]) == {"two"}
    with pytest.raises(UserError, match="no study 'three'; it has: one, two"):
        load(store, ["three"])


def test_a_store_that_does_not_exist_is_a_users_mistake(tmp_path):
    with pytest.raises(UserError, match="no store at"):
        load(tmp_path / "nowhere")


def test_diagnostics_are_read_without_pickle(store):
    trial = add_study(store, "one", {"at": [0.48]})["at", 0]
    add_diagnostics(store, trial, {"a": 1.0}, {"train_margin": np.arange(3.0)})
    harmful = add_diagnostics(store, trial, {}, {"x": np.array([object()])}, checkpoint="best_validation")
    data = load(store)
    found = data.diagnostics(layout.short(trial), "last")
    assert found.summary == {"a": 1.0} and list(found.arrays["train_margin"]) == [0, 1, 2]
    assert data.diagnostics(layout.short(trial), "best_validation") is None
    assert data.diagnostics(layout.short(trial), "best_test") is data.diagnostics("0" * 16, "last") is None
    assert [problem.path for problem in data.problems] == [harmful.path]


def drawn_and_not_kept(figure, stem, *, pdf):
    """To encode a picture takes longer than all that reads its numbers."""
    return []


def flipped(content: bytes) -> bytes:
    return content[:200] + bytes([content[200] ^ 1]) + content[201:]


@pytest.mark.parametrize("checked", [True, False], ids=["with checksum", "from before checksums"])
@pytest.mark.parametrize(
    "damage", [lambda content: b"", lambda content: content[:100], flipped, None], ids=["empty", "cut", "bit", "gone"]
)
def test_damaged_arrays_are_a_problem_and_the_report_is_made(tmp_path, monkeypatch, checked, damage):
    methods = {label: synthetic.METHODS[label] for label in ("at", "sovr")}
    store = synthetic.write_store(tmp_path / "store", methods=methods, seeds=(0,), search=False, failed=())
    paths = [path for path in store.paths("diagnostics") if path.endswith(".json")]
    for record in list(store.records(DiagnosticsRecord, paths)):
        if not checked:
            store.write_record(record.model_copy(update={"arrays_sha256": None}))
        if damage is None:
            store.delete(record.arrays_path)
        else:
            store.write(record.arrays_path, damage(store.read(record.arrays_path)))
    results = results_of(store)
    monkeypatch.setattr(style, "save", drawn_and_not_kept)
    draw_all(results, tmp_path / "plots", pdf=False)
    assert {problem.path for problem in results.data.problems} <= set(paths) and results.data.problems
    assert all(problem.reason for problem in results.data.problems)
    page = write_page(results, [], [], tmp_path).read_text("utf-8")
    assert all(problem.path in page for problem in results.data.problems)


def test_a_broken_manifest_is_named_and_the_other_studies_are_shown(store, tmp_path):
    for name in ("good", "bad"):
        add_study(store, name, {"at": [0.48]})
    store.write("studies/bad.json", store.read("studies/bad.json")[:-5])
    write_reports(store.uri, None, tmp_path / "out", figures=False)
    text = (tmp_path / "out" / "tables.md").read_text("utf-8")
    assert "`studies/bad.json`: not JSON" in text and "Study good" in text
    (problem,) = broken_manifests(store.uri)
    assert problem.path == "studies/bad.json" and problem.reason.startswith("not JSON")
    assert broken_manifests(store.uri, ["bad"]) and not broken_manifests(store.uri, ["good"])
    assert set(load(store, ["good", "bad"]).manifests) == {"good"}
    with pytest.raises(UserError, match="no study 'ugly'; it has: good"):
        load(store, ["bad", "ugly"])


@pytest.mark.parametrize("folder", ["trials", "evaluations", "diagnostics", "searches", "studies"])
def test_a_file_that_cannot_be_read_is_a_problem(tmp_path, monkeypatch, folder):
    methods = {label: synthetic.METHODS[label] for label in ("at", "sovr")}
    store = synthetic.write_store(tmp_path / "store", methods=methods, seeds=(0,), failed=())
    unreadable = next(path for path in store.paths(folder) if path.endswith(".json"))
    read = FolderStore.read

    def refused(self, path):
        if path == unreadable:
            raise PermissionError(13, "Permission denied")
        return read(self, path)

    monkeypatch.setattr(FolderStore, "read", refused)
    monkeypatch.setattr(style, "save", drawn_and_not_kept)
    write_reports(store.uri, None, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert unreadable in page and "Permission denied" in page


def test_a_record_that_vanishes_while_the_figures_are_drawn_leaves_a_hole(tmp_path):
    methods = {"at": synthetic.METHODS["at"]}
    store = synthetic.write_store(tmp_path / "store", methods=methods, seeds=(0,), components=False, failed=())
    results = results_of(store)
    for path in store.paths("trials") + store.paths("evaluations"):
        store.delete(path)
    draw_all(results, tmp_path / "plots", pdf=False)
    assert results.data.curve(trial_hash("synthetic", "at", 0)).empty


def test_a_report_loads_neither_torch_nor_ray(store, tmp_path):
    study = Study.load("cifar10_awp")
    made = plan.manifest(study, plan.expand(study))
    facts = made.model_dump(include={"dataset", "model", "displays", "inner_attacks", "config_by_label"})
    add_study(store, "cifar10_awp", {"at+awp": [0.48], "sovr+awp": [0.5]}, **facts)
    code = (
        "import sys, reports, reports.comparison.diff, reports.export;"
        "reports.write_reports(sys.argv[1], None, sys.argv[2]);"
        "print({'torch', 'ray'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, store.uri, str(tmp_path / "out")]
    assert subprocess.check_output(command, text=True).strip() == "set()"


def test_a_store_that_is_no_folder_gives_the_same(store, monkeypatch):
    trials = add_study(store, "one", {"at": [0.48, 0.49], "sovr": [0.5, None]})
    folder = trials["at", 1][:16]
    store.write_record(shard_record(f"evaluations/{folder}/best_test/autoattack-8_255-x", 0, 100))
    store.write(f"trials/{folder}/extra/record.json", b"{}")
    add_trial(store, trial_hash("of no study"))
    (store.root / "trials" / folder / "record.json").write_text("{")
    (store.root / "trials" / "my notes").mkdir()
    (store.root / "trials" / "my notes" / "record.json").write_text("{}")
    here = load(store)
    monkeypatch.setattr(type(store), "local", lambda self, path: None)
    away = load(store)
    assert away.cells.equals(here.cells) and away.evaluations.equals(here.evaluations)
    assert away.problems == here.problems and len(here.problems) == 2
