"""A study under a real Ray on loopback: from nothing to its tables, killed and continued, by one driver or two."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from sweep.engine import run
from sweep.engine.options import RunOptions
from sweep.engine.run import Tables, _confirm, is_complete, run_study
from sweep.errors import UserError
from sweep.store import layout
from sweep.store.encoding import encode
from sweep.store.lease_upkeep import held
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.search import SearchRecord
from sweep.store.records.trial import TrialRecord
from sweep.store.usage import Usage
from sweep.studies.model import Study
from tests import records as made
from tests.patience import patience
from tests.sweep.tiny_study import TINY, tiny

ROOT = Path(__file__).parents[2]


def options(folder: Path) -> RunOptions:
    return RunOptions(data_dir=folder / "data", out=folder / "reports")


def start(study_file: Path, store: Path, out: Path, cwd: Path | None = None) -> subprocess.Popen:
    words = [sys.executable, "-m", "sweep.run", "--study", str(study_file), "--store", str(store), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        words,
        cwd=cwd or out.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def records(store: Path) -> int:
    return len(list(store.glob("trials/*/record.json")))


def outcome(store_uri) -> dict:
    """Everything in a store that must not depend on when and where it was computed."""
    store = open_store(store_uri)
    found: dict[str, tuple] = {}
    for trial in store.records(TrialRecord, store.record_paths(TrialRecord)):
        curve = [{key: value for key, value in row.items() if key != "seconds"} for row in trial.curve]
        found[trial.path] = (trial.status, curve, trial.checkpoints)
    for evaluation in store.records(EvaluationRecord, store.record_paths(EvaluationRecord)):
        found[evaluation.path] = (evaluation.verdicts, evaluation.clean, evaluation.accuracy)
    for search in store.records(SearchRecord, store.record_paths(SearchRecord)):
        found[search.path] = (search.candidates, search.chosen, search.reason)
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """One run to the end: its folder, its study and its summary."""
    folder = tmp_path_factory.mktemp("undisturbed")
    study = tiny(folder)
    summary = run_study(study, open_store(folder / "store"), options(folder))
    return folder, study, summary


@pytest.mark.timeout(300, func_only=True)
def test_a_study_becomes_records_and_tables(undisturbed):
    folder, study, summary = undisturbed
    store = open_store(folder / "store")
    assert summary.complete and not summary.failed
    assert summary.done["search"] == 6
    assert summary.device_use is not None and 0 < summary.device_use <= 1
    manifest = store.manifest("tiny")
    assert [cell.label for cell in manifest.cells] == ["at", "at", "sovr", "sovr", "sovr_searched", "sovr_searched"]
    assert summary.done["train"] == len({cell.trial for cell in manifest.cells})
    search = store.search_record(manifest.searches[0].id)
    assert search.status == "done" and len(search.candidates) == 6
    assert {key: manifest.cells[4].hyperparameters[key] for key in ("M", "lam")} == search.chosen
    for cell in manifest.cells:
        record = store.trial_record(cell.trial)
        assert record.status == "done" and len(record.curve) == 3
        assert record.command.startswith("python -m sweep.run")
        assert store.record_paths(EvaluationRecord, layout.evaluations_of(cell.trial)) == sorted(
            manifest.evaluation_paths(cell)
        )
        files = {path.rpartition("/")[2] for path in store.paths(layout.trial_folder(cell.trial))}
        assert files == {
            "record.json",
            "log.txt",
            "last.safetensors",
            "best_validation.safetensors",
        }
    assert not held(store)
    assert list((folder / "store/tensorboard/tiny").glob("at-seed0-*/events*"))
    assert (folder / "reports/tables.md").read_text().strip()


def test_a_finished_study_is_recognised_without_ray(undisturbed, monkeypatch):
    folder, study, _ = undisturbed
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray was started"))
    before = (folder / "reports/tables.md").read_bytes()
    summary = run_study(study, open_store(folder / "store"), options(folder))
    assert summary.all_there and "all was there" in summary.text()
    assert (folder / "reports/tables.md").read_bytes() == before


@pytest.mark.timeout(300, func_only=True)
def test_a_study_without_ray_has_the_same_records_and_tables(undisturbed, tmp_path):
    folder, study, _ = undisturbed
    store = open_store(tmp_path / "store")
    summary = run_study(study, store, replace(options(tmp_path), local=True))
    assert summary.complete and outcome(store.uri) == outcome(folder / "store")
    assert tables_in(tmp_path) == tables_in(folder)


@pytest.mark.timeout(300, func_only=True)
def test_a_sweep_that_is_stopped_and_then_killed_goes_on_to_the_same_tables(undisturbed, tmp_path):
    folder, _, _ = undisturbed
    store = tmp_path / "store"

    process = start(folder / "tiny.yaml", store, tmp_path / "reports")
    wait_for(lambda: records(store) >= 1)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    output, _ = process.communicate(timeout=patience(120))
    assert process.returncode == 130, output
    assert "Traceback" not in output and "to go on: python -m sweep.run" in output
    assert not held(open_store(store))

    stopped = records(store)
    process = start(folder / "tiny.yaml", store, tmp_path / "reports")
    wait_for(lambda: records(store) > stopped)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert records(store) < len(list((folder / "store").glob("trials/*/record.json")))

    process = start(folder / "tiny.yaml", store, tmp_path / "reports")
    output, _ = process.communicate(timeout=patience(200))
    assert process.returncode == 0, output
    assert outcome(store) == outcome(folder / "store")
    assert tables_in(tmp_path) == tables_in(folder)


def tables_in(folder):
    """All of tables.md but the commands in it, which name the study as it was typed."""
    return re.sub("`python -m [^`]*`", "`command`", (folder / "reports/tables.md").read_text())


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_ray_starts_is_heard(tmp_path, kind):
    tiny(tmp_path)
    process = start(tmp_path / "tiny.yaml", tmp_path / "store", tmp_path / "reports")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "starting Ray" in line
    process.send_signal(kind)
    output, _ = process.communicate(timeout=patience(90))
    assert process.returncode == 130, output
    assert "Traceback" not in output and records(tmp_path / "store") == 0


@pytest.mark.timeout(200)
def test_a_terminated_group_ends_with_the_command_to_go_on(tmp_path):
    """As `timeout` and `scancel` do: Ray's own processes get the signal too."""
    tiny(tmp_path, methods={"at": {}}, search=None, train={**TINY["train"], "epochs": 20_000})
    store = tmp_path / "store"
    process = start(tmp_path / "tiny.yaml", store, tmp_path / "reports")
    wait_for(lambda: list(store.glob("trials/*/resume.pt")))
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=patience(60))
    assert process.returncode == 130 and "Traceback" not in output, output
    assert "to go on: python -m sweep.run" in output and not held(open_store(store))


def test_a_folder_that_cannot_hold_the_tables_is_refused_before_anything_is_trained(tmp_path):
    study, store = tiny(tmp_path), open_store(tmp_path / "store")
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="cannot write to .*by --out"):
            run_study(study, store, RunOptions(out=out))
    assert not store.paths()


@pytest.mark.timeout(300, func_only=True)
def test_a_working_folder_that_goes_away_ends_nothing(tmp_path):
    """That of a Ray job is unpacked anew when another node of the same machine gets its first task."""
    tiny(tmp_path, methods={"at": {}}, seeds=[0], search=None)
    here, store, tables = tmp_path / "here", tmp_path / "store", tmp_path / "tables"
    here.mkdir()
    sweep = start(tmp_path / "tiny.yaml", store, tables, cwd=here)
    wait_for(lambda: records(store))
    shutil.rmtree(here)
    said, _ = sweep.communicate(timeout=patience(120))
    assert sweep.returncode == 0 and (tables / "tables.md").is_file(), said


def test_two_drivers_on_one_store_share_the_work(undisturbed, tmp_path):
    folder, _, _ = undisturbed
    store = tmp_path / "store"
    drivers = [start(folder / "tiny.yaml", store, tmp_path / f"reports{number}") for number in range(2)]
    for driver in drivers:
        output, _ = driver.communicate(timeout=patience(280))
        assert driver.returncode == 0, output
    assert outcome(store) == outcome(folder / "store")
    for log in store.glob("trials/*/log.txt"):
        starts = [line.split()[1] for line in log.read_text().splitlines() if " on " in line]
        assert starts.count("train") + starts.count("search") == 1, log


def test_a_budget_that_is_used_up_starts_nothing(tmp_path):
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0])
    store = open_store(tmp_path / "store")
    note = Usage(driver="earlier", device_seconds=3600)
    store.write(layout.usage(study.name, note.driver), encode(note.model_dump()))
    summary = run_study(study, store, RunOptions(data_dir=tmp_path, out=None, budget="1h"))
    assert summary.budget_reached and not summary.complete and not summary.interrupted
    assert summary.done == {} and "budget is used up" in summary.text()
    assert not is_complete(study, open_store(tmp_path / "store"))


def test_days_of_work_are_asked_about_and_minutes_are_not(tmp_path, monkeypatch):
    store = open_store(tmp_path / "store")
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr("builtins.input", lambda _: "n")
    _confirm(tiny(tmp_path), store, "python -m sweep.run --study tiny", RunOptions())
    with pytest.raises(UserError, match="not started"):
        run_study(Study.load("cifar10_rn18"), store, RunOptions(out=None))
    monkeypatch.setattr("builtins.input", lambda _: "y")
    _confirm(Study.load("cifar10_rn18"), store, "python -m sweep.run --study cifar10_rn18", RunOptions())


def test_tables_are_written_now_and_then_and_a_fault_in_them_ends_nothing(tmp_path, monkeypatch):
    now, written, said = 0.0, [], []
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(run, "write_tables", lambda *_, **__: written.append(now))
    tables = Tables(open_store(tmp_path / "store"), tmp_path / "out")
    for now, done in ((1.0, 1), (121.0, 0), (122.0, 1), (123.0, 2), (300.0, 1), (301.0, 3)):  # noqa: B007
        tables.update(done, said.append)
    assert written == [122.0, 301.0]  # not at once, not without anything new, not too often
    monkeypatch.setattr(run, "write_tables", lambda *_, **__: 1 / 0)
    now = 500.0
    tables.update(4, said.append)
    assert said == ["tables could not be written (division by zero); the sweep goes on"]


@pytest.mark.parametrize("drivers", [1, 2])
def test_broken_records_are_set_aside_and_told_before_anything_is_looked_at(tmp_path, capsys, monkeypatch, drivers):
    study, store = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0]), open_store(tmp_path / "store")
    record = made.trial_record("ef" * 32)
    store.write(record.path, record.encoded()[:-9])
    monkeypatch.setattr(run, "is_complete", lambda *_: pytest.fail("stop here"))
    if drivers == 2:
        found = list(store.broken_records())
        monkeypatch.setattr(store, "broken_records", lambda: found)  # both saw it; the other was faster
        store.set_aside(record.path)
    with pytest.raises(pytest.fail.Exception, match="stop here"):
        run_study(study, store, RunOptions(data_dir=tmp_path, out=None, progress=False))
    assert store.paths(layout.BROKEN) == [f"broken/{record.path}.1"] and not store.exists(record.path)
    assert ("it is kept as" in capsys.readouterr().err) == (drivers == 1)


@pytest.mark.timeout(300, func_only=True)
def test_a_store_on_s3_gets_the_same_numbers(undisturbed, tmp_path, endpoint):
    folder, _, _ = undisturbed
    store = open_store(f"s3://results/tiny?endpoint_override={quote(endpoint, safe='')}&region=us-east-1")
    study = tiny(tmp_path, seeds=[0], search={"sovr": {"candidates": 2}})
    assert run_study(study, store, RunOptions(data_dir=tmp_path, out=None)).complete
    expected, found = outcome(folder / "store"), outcome(store.uri)
    shared = [key for key in found if key in expected]
    assert len(shared) >= 5  # AT's training and its evaluations
    assert all(found[key] == expected[key] for key in shared)
    assert any(path.endswith("journal.log") for path in store.paths("searches"))
    assert not any(path.endswith("resume.pt") for path in store.paths("trials"))
