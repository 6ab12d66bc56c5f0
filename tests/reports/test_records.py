"""Records become frames; what is broken or foreign is listed and left out."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hand_made import add_evaluation, add_study, add_trial, new_store, trial_hash

from reports.store.load import load, unpack
from sweep.errors import UserError


@pytest.fixture
def store(tmp_path):
    return new_store(tmp_path)


def test_every_planned_cell_is_a_row_whether_run_or_not(store):
    add_study(store, "one", {"at": [0.48, None], "sovr": [0.5, 0.4]}, statuses={("sovr", 1): "collapsed"})
    cells = load(store).cells
    assert list(cells["status"]) == ["done", "missing", "done", "collapsed"]
    assert list(cells["seed"]) == [0, 1, 0, 1]
    assert cells["last_epoch"].iloc[0] == {"epoch": 1, "train_margin": -2.0}
    assert cells["reason"].iloc[3] == "loss became NaN"


def test_a_cell_that_waits_for_its_search_has_no_trial(store):
    cells = [{"label": "sovr", "method": "sovr", "display": "SOVR", "seed": 0, "trial": None, "hyperparameters": {}}]
    add_study(store, "one", {"at": [0.48]}, cells=cells)
    assert list(load(store).cells["status"]) == ["waiting"]


def test_evaluations_hold_accuracies_and_read_verdicts_when_asked(store):
    trials = add_study(store, "one", {"at": [0.48]})
    data = load(store)
    row = data.evaluations[data.evaluations["attack"] == "autoattack"].iloc[0]
    assert (row["accuracy"], row["clean_accuracy"], row["epsilon"], row["images"]) == (0.48, 0.9, "8/255", 1000)
    verdicts = data.verdicts(row["path"])
    assert verdicts.dtype == bool and verdicts.sum() == 480 and verdicts.size == 1000
    assert data.clean_verdicts(row["path"]).sum() == 900
    assert len(data.curve(trials["at", 0][:16])) == 2
    assert data.curve("0" * 16).empty


def test_verdicts_of_any_number_of_images_are_unpacked():
    import base64

    for images in (1, 7, 8, 9, 1001):
        bits = np.arange(images) % 3 == 0
        text = base64.b64encode(np.packbits(bits).tobytes()).decode()
        assert (unpack(text, images) == bits).all()


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
    store.write_json(f"evaluations/{folder['sovr', 0]}/best_test/other-2.json", {"kind": "shopping list"})
    (root / "trials" / "my notes").mkdir()
    (root / "trials" / "my notes" / "record.json").write_text("{}")
    add_trial(store, trial_hash("x"), {})
    stranger = json.loads((root / "trials" / trial_hash("x")[:16] / "record.json").read_text())
    store.write_json(f"trials/{folder['sovr', 2]}/record.json", stranger)
    (root / "studies" / "bad.json").write_text("[]")
    data = load(store)
    assert sorted(data.cells["status"]) == ["done", "done", "done", "missing", "missing", "missing"]
    paths = {problem.path: problem.reason for problem in data.problems}
    assert len(paths) == 7
    assert "belongs to trial" in paths[f"trials/{folder['sovr', 2]}/record.json"]
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
    store.write_json(path, {**store.read_json(path), **change})
    data = load(store)
    assert [problem.path for problem in data.problems] == [path]
    assert "square" not in set(data.evaluations["attack"])


def test_shards_in_progress_are_not_evaluations(store):
    trials = add_study(store, "one", {"at": [0.48]})
    folder = f"evaluations/{trials['at', 0][:16]}/best_test/autoattack-8_255-x"
    store.write_json(f"{folder}/shard-0-100.json", {"kind": "shard"})
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


def test_diagnostics_are_read_without_pickle_and_a_broken_one_is_a_problem(store):
    trials = add_study(store, "one", {"at": [0.48]})
    trial = trials["at", 0][:16]
    import io

    content = io.BytesIO()
    np.savez(content, train_margin=np.arange(3.0))
    store.write(f"diagnostics/{trial}/last.npz", content.getvalue())
    store.write_json(
        f"diagnostics/{trial}/last.json", {"kind": "diagnostics", "summary": {"a": 1}, "arrays": "last.npz"}
    )
    store.write_json(f"diagnostics/{trial}/best_test.json", {"kind": "diagnostics", "summary": {}, "arrays": "no.npz"})
    harmful = io.BytesIO()
    np.savez(harmful, x=np.array([object()], dtype=object))
    store.write(f"diagnostics/{trial}/best_validation.npz", harmful.getvalue())
    record = {"kind": "diagnostics", "summary": {}, "arrays": "best_validation.npz"}
    store.write_json(f"diagnostics/{trial}/best_validation.json", record)
    data = load(store)
    found = data.diagnostics(trial, "last")
    assert found.summary == {"a": 1} and list(found.arrays["train_margin"]) == [0, 1, 2]
    assert data.diagnostics(trial, "best_test") is None
    assert data.diagnostics(trial, "best_validation") is None
    assert data.diagnostics("0" * 16, "last") is None
    assert len(data.problems) == 2


def test_the_reports_load_neither_torch_nor_ray():
    code = (
        "import sys, reports, reports.writing, reports.diff, reports.export, reports.__main__;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'ray')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_large_store_read_by_two_processes_gives_the_same(store, monkeypatch):
    from reports.store import reading

    trials = add_study(store, "one", {"at": [0.48, 0.49, 0.5], "sovr": [0.5, 0.51, 0.52]})
    broken = [store.root / "trials" / trials["at", seed][:16] / "record.json" for seed in (0, 2)]
    for path in broken:
        path.write_text("{")
    once = load(store)
    monkeypatch.setattr(reading, "MANY", 2)
    twice = load(store)
    assert twice.cells.equals(once.cells) and twice.evaluations.equals(once.evaluations)
    assert twice.problems == once.problems and len(once.problems) == 2
    path = once.evaluations["path"].iloc[-1]
    assert (twice.verdicts(path) == once.verdicts(path)).all()


def test_a_store_that_is_no_folder_gives_the_same(store, monkeypatch):
    trials = add_study(store, "one", {"at": [0.48, 0.49], "sovr": [0.5, None]})
    folder = trials["at", 1][:16]
    store.write_json(f"evaluations/{folder}/best_test/autoattack-8_255-x/shard-0-100.json", {"kind": "shard"})
    store.write(f"trials/{folder}/extra/record.json", b"{}")
    add_trial(store, trial_hash("of no study"), {})
    (store.root / "trials" / folder / "record.json").write_text("{")
    (store.root / "trials" / "my notes").mkdir()
    (store.root / "trials" / "my notes" / "record.json").write_text("{}")
    here = load(store)
    monkeypatch.setattr(type(store), "local", lambda self, path: None)
    away = load(store)
    assert away.cells.equals(here.cells) and away.evaluations.equals(here.evaluations)
    assert away.problems == here.problems and len(here.problems) == 2
