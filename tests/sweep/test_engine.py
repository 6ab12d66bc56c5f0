"""A study under a real Ray on loopback: from nothing to its tables, killed and continued, by one driver or two."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_study import tiny

from sweep.engine import _confirm, budget_hours, is_complete, run_study
from sweep.errors import UserError
from sweep.store.opening import open_store
from sweep.studies.model import Study

ROOT = Path(__file__).parents[2]


def start(study_file: Path, store: Path, out: Path, *more: str) -> subprocess.Popen:
    words = [sys.executable, "-m", "sweep.run", "--study", str(study_file), "--store", str(store), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*words, *more],
        cwd=out.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def records(store: Path) -> int:
    return len(list(store.glob("trials/*/record.json")))


def outcome(store_uri) -> dict:
    """Everything in a store that must not depend on when and where it was computed."""
    store = open_store(store_uri)
    found = {}
    for record in store.trial_records():
        curve = [{key: value for key, value in row.items() if key != "seconds"} for row in record["curve"]]
        found[record["trial"]] = (record["status"], curve, record["checkpoints"])
    for path in store.evaluation_paths():
        record = store.read_json(path)
        found[path] = (record["verdicts"], record["clean"], record["accuracy"])
    for path in store.list("searches"):
        if path.endswith("record.json"):
            record = store.read_json(path)
            found[path] = json.dumps({key: record[key] for key in ("candidates", "chosen", "reason")}, sort_keys=True)
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """One run to the end: its folder, its study and its summary."""
    folder = tmp_path_factory.mktemp("undisturbed")
    study = tiny(folder)
    summary = run_study(study, open_store(folder / "store"), data_dir=folder / "data", out=folder / "reports")
    return folder, study, summary


@pytest.mark.timeout(300)
def test_a_study_becomes_records_and_tables(undisturbed):
    folder, study, summary = undisturbed
    store = open_store(folder / "store")
    assert summary.complete and not summary.failed
    assert summary.done["candidate"] == 6 and summary.done["train"] == 4
    assert summary.device_use is not None and 0.2 < summary.device_use <= 1
    manifest = store.manifest("tiny")
    assert [cell["label"] for cell in manifest["cells"]] == ["at", "at", "sovr", "sovr"]
    search = store.search_record(manifest["searches"][0]["id"])
    assert search["status"] == "done" and len(search["candidates"]) == 6
    assert {key: manifest["cells"][2]["hyperparameters"][key] for key in ("M", "lam")} == search["chosen"]
    for cell in manifest["cells"]:
        record = store.trial_record(cell["trial"])
        assert record["status"] == "done" and len(record["curve"]) == 3
        assert record["command"].startswith("python -m sweep.run")
        assert len(list(store.evaluation_records(cell["trial"]))) == len(manifest["attacks"])
        files = {path.rpartition("/")[2] for path in store.list(f"trials/{cell['trial'][:16]}")}
        assert files == {
            "record.json",
            "log.txt",
            "last.safetensors",
            "best_test.safetensors",
            "best_validation.safetensors",
        }
    assert not store.claims()
    assert list((folder / "store/tensorboard/tiny").glob("at-seed0-*/events*"))
    assert (folder / "reports/tables.md").read_text().strip()


def test_a_finished_study_is_recognised_without_ray(undisturbed, monkeypatch):
    folder, study, _ = undisturbed
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray was started"))
    before = (folder / "reports/tables.md").read_bytes()
    summary = run_study(study, open_store(folder / "store"), data_dir=folder / "data", out=folder / "reports")
    assert summary.all_there and "all was there" in summary.text()
    assert (folder / "reports/tables.md").read_bytes() == before


@pytest.mark.timeout(300)
def test_a_sweep_that_is_stopped_and_then_killed_goes_on_to_the_same_tables(undisturbed, tmp_path):
    folder, _, _ = undisturbed
    store = tmp_path / "store"

    process = start(folder / "tiny.yaml", store, tmp_path / "reports")
    wait_for(lambda: records(store) >= 1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output and "to go on: python -m sweep.run" in output
    assert not open_store(store).claims()

    stopped = records(store)
    process = start(folder / "tiny.yaml", store, tmp_path / "reports")
    wait_for(lambda: records(store) > stopped)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert records(store) < len(list((folder / "store").glob("trials/*/record.json")))

    process = start(folder / "tiny.yaml", store, tmp_path / "reports")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    assert outcome(store) == outcome(folder / "store")
    assert (tmp_path / "reports/tables.md").read_bytes() == (folder / "reports/tables.md").read_bytes()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_ray_starts_is_heard(tmp_path, kind):
    tiny(tmp_path)
    process = start(tmp_path / "tiny.yaml", tmp_path / "store", tmp_path / "reports")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "starting Ray" in line
    process.send_signal(kind)
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 130, output
    assert "Traceback" not in output and records(tmp_path / "store") == 0


def test_a_folder_that_cannot_hold_the_tables_is_refused_before_anything_is_trained(tmp_path):
    study, store = tiny(tmp_path), open_store(tmp_path / "store")
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="cannot write to .*by --out"):
            run_study(study, store, out=out)
    assert not store.list()


@pytest.mark.timeout(300)
def test_two_drivers_on_one_store_share_the_work(undisturbed, tmp_path):
    folder, _, _ = undisturbed
    store = tmp_path / "store"
    drivers = [start(folder / "tiny.yaml", store, tmp_path / f"reports{number}") for number in range(2)]
    for driver in drivers:
        output, _ = driver.communicate(timeout=280)
        assert driver.returncode == 0, output
    assert outcome(store) == outcome(folder / "store")
    for log in store.glob("trials/*/log.txt"):
        starts = [line.split()[1] for line in log.read_text().splitlines() if " on " in line]
        assert starts.count("train") + starts.count("candidate") == 1, log


def test_a_budget_that_is_used_up_starts_nothing(tmp_path):
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0])
    summary = run_study(study, open_store(tmp_path / "store"), data_dir=tmp_path, out=None, budget="0h")
    assert summary.budget_reached and not summary.complete and not summary.interrupted
    assert summary.done == {} and "budget is used up" in summary.text()
    assert not is_complete(study, open_store(tmp_path / "store"))


def test_days_of_work_are_asked_about_and_minutes_are_not(tmp_path, monkeypatch):
    store = open_store(tmp_path / "store")
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr("builtins.input", lambda _: "n")
    _confirm(tiny(tmp_path), store)
    with pytest.raises(UserError, match="not started"):
        run_study(Study.load("cifar10_rn18"), store, out=None)
    monkeypatch.setattr("builtins.input", lambda _: "y")
    _confirm(Study.load("cifar10_rn18"), store)


def test_budgets_are_read_in_hours_minutes_and_days():
    assert budget_hours("500h") == 500 and budget_hours("30min") == 0.5 and budget_hours("2d") == 48
    assert budget_hours("1.5") == 1.5 and budget_hours(None) is None
    for wrong in ("soon", "-1h", "h"):
        with pytest.raises(UserError, match="--budget"):
            budget_hours(wrong)


@pytest.mark.timeout(300)
def test_a_store_on_s3_gets_the_same_numbers(undisturbed, tmp_path, monkeypatch):
    from moto.server import ThreadedMotoServer

    folder, _, _ = undisturbed
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        import boto3

        endpoint = f"http://{host}:{port}"
        boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="sweeps")
        uri = f"s3://sweeps/tiny?endpoint_override=http%3A%2F%2F{host}%3A{port}&region=us-east-1"
        study = tiny(tmp_path, seeds=[0], search={"sovr": {"candidates": 2}})
        summary = run_study(study, open_store(uri), data_dir=tmp_path, out=None)
        assert summary.complete
        expected, found = outcome(folder / "store"), outcome(uri)
        shared = [key for key in found if key in expected]
        assert len(shared) >= 5  # AT's training and its evaluations
        assert all(found[key] == expected[key] for key in shared)
        assert any(path.endswith("journal.log") for path in open_store(uri).list("searches"))
        assert not any(path.endswith("resume.pt") for path in open_store(uri).list("trials"))
    finally:
        server.stop()
