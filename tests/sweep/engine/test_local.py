"""A study without Ray: its pieces one after the other in this process."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sweep.engine.local import run_here
from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.errors import SweepEnded
from sweep.store import layout
from sweep.store.leases import take
from sweep.store.opening import open_store
from sweep.work import queue as queues
from sweep.work import training, worker
from sweep.work.pieces import Setting, piece_from, trial_metrics
from sweep.work.queue import Queue
from sweep.work.trainable import trainable
from tests import records
from tests.patience import patience
from tests.sweep.tiny_study import TINY, tiny

ROOT = Path(__file__).parents[3]
ONE = {"methods": {"at": {}}, "search": None, "seeds": [0]}


class Here:
    def __init__(self, folder, **changes):
        self.study, self.store = tiny(folder, **{**ONE, **changes}), open_store(folder / "store")
        self.setting = Setting(self.store.uri, str(folder), "tiny")
        self.queue = Queue(self.study, self.store)

    def run(self, do=None, retries=0, **more):
        """Return the seconds of every piece."""
        options = {**more, **({"run": do} if do else {})}
        return list(run_here(self.queue, self.setting, retries, **options))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setattr(queues, "LOOK_SECONDS", 0.0)
    made = []

    def make(**changes):
        made.append(Here(tmp_path, **changes))
        return made[-1]

    yield make
    for one in made:
        one.queue.close()


def collapsing(store):
    """A trainer whose trainings all collapse."""

    def do(config, setting, report):
        piece = piece_from(config)
        record = records.trial_record(piece.trial, config=piece.config, status="collapsed")
        store.write_record(record)
        return trial_metrics(record)

    return do


def test_everything_is_done_one_after_the_other(here):
    done = here(methods={"at": {}, "sovr": {}}, search={"sovr": {"candidates": 2}})
    seconds = done.run()
    assert done.queue.complete and not done.queue.failed and len(seconds) == sum(done.queue.done.values())
    assert set(done.store.trial_states().values()) == {"done"} and not done.store.paths(layout.LEASES)
    again = Queue(done.study, done.store)
    assert again.complete and list(run_here(again, done.setting, 0)) == []


def test_a_column_and_its_attacks_get_the_cores_that_they_ask_for(here):
    given = {}

    def note(config, setting, report):
        given[config["column"], config["stage"]] = config["resources"]["cpu"]
        return trainable(config, setting, report)

    resources = {"cpus": 2, "evaluation": {"cpus": 1}}
    here(methods={"at": {}, "st": {"resources": {"cpus": 3}}}, resources=resources).run(note)
    assert given == {("at", "train"): 2, ("st", "train"): 3, ("at", "attack"): 1, ("st", "attack"): 1}


def test_a_piece_that_raises_is_tried_again_and_then_recorded(here):
    sweep, attempts = here(seeds=[0, 1]), []

    def do(config, setting, report):
        attempts.append(config["seed"])
        if config["seed"] == 0:
            raise RuntimeError("the loss is broken")
        return collapsing(sweep.store)(config, setting, report)

    sweep.run(do, retries=2)
    assert sorted(attempts) == [0, 0, 0, 1] and sweep.queue.complete
    assert sorted(sweep.store.trial_states().values()) == ["collapsed", "failed"]
    assert "the loss is broken" in sweep.queue.failed[0].reason


def test_progress_in_between_gives_all_attempts_back(here):
    sweep, attempts = here(), []

    def do(config, setting, report):
        attempts.append(1)
        if len(attempts) < 6:
            report({"epoch": len(attempts) - 1})
            raise RuntimeError("now and then")
        return collapsing(sweep.store)(config, setting, report)

    sweep.run(do, retries=1)
    assert len(attempts) == 6 and set(sweep.store.trial_states().values()) == {"collapsed"}


def test_a_fault_of_this_machine_ends_the_sweep_and_is_not_recorded(here):
    sweep = here()

    def do(config, setting, report):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        sweep.run(do, retries=3)
    assert sweep.queue.left == 1 and not sweep.store.paths(layout.TRIALS)


def test_a_machine_that_cannot_work_ends_the_sweep_with_the_reason(here, monkeypatch):
    monkeypatch.setattr(worker, "HOLD_SECONDS", 0.01)
    sweep = here()
    sweep.setting = Setting(sweep.store.uri, sweep.setting.data_dir, versions={"torch": "9.9.9"})
    with pytest.raises(SweepEnded, match=r"9\.9\.9"):
        sweep.run()
    assert sweep.queue.left == 1 and not sweep.store.paths(layout.TRIALS)


def test_a_stop_ends_a_training_at_its_next_report_and_it_goes_on_from_there(here, tmp_path):
    sweep, stopping = here(), threading.Event()
    epochs = []

    def do(config, setting, report):
        assert config["resources"] == {"cpu": 1.0}

        def hear(metrics):
            epochs.extend(row["epoch"] for row in (*metrics.get("earlier", ()), metrics) if "epoch" in row)
            if epochs:
                stopping.set()
            report(metrics)

        return trainable(config, setting, hear)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "REPORT_SECONDS", 0.0)
        assert sweep.run(do, stopping=stopping.is_set) == []
    assert epochs == [0] and sweep.queue.left == 1 and not sweep.store.paths(layout.LEASES)
    trial = next(iter(sweep.queue.cells))
    assert b"Traceback" not in sweep.store.read(layout.trial_file(trial, layout.LOG))
    assert sweep.store.exists(layout.trial_file(trial, layout.RESUME))
    stopping.clear()
    sweep.run()
    resumed = sweep.store.trial_record(trial)
    other = Here(tmp_path)  # the same in a store of its own
    other.store = open_store(tmp_path / "other")
    other.queue, other.setting = Queue(other.study, other.store), Setting(other.store.uri, str(tmp_path))
    other.run()
    whole = other.store.trial_record(trial)
    assert resumed.checkpoints == whole.checkpoints and len(resumed.curve) == len(whole.curve) == 3


def test_what_another_driver_has_is_waited_for(here):
    sweep = here()
    (cell,) = sweep.queue.cells.values()
    lease = take(sweep.store, layout.trial_lease(cell.trial), owner="another")

    def finish():
        record = records.trial_record(cell.trial, config=cell.config, status="collapsed")
        sweep.store.write_record(record)
        lease.release()

    timer = threading.Timer(1.0, finish)
    timer.start()
    assert sweep.run(lambda *_: pytest.fail("it is the other driver's")) == []
    timer.join(patience(30))
    assert sweep.queue.complete and sweep.queue.done["train"] == 1


def test_a_run_without_ray_says_what_any_run_says(tmp_path, monkeypatch):
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray was started"))
    study, store = tiny(tmp_path, **ONE), open_store(tmp_path / "store")
    first = run_study(study, store, RunOptions(data_dir=tmp_path, out=None, local=True, budget="0.0000001h"))
    assert first.budget_reached and not first.complete and first.done == {"train": 1} and first.device_hours > 0
    summary = run_study(study, store, RunOptions(data_dir=tmp_path, out=tmp_path / "reports", local=True))
    assert summary.complete and set(summary.done) == {"attack"}
    assert (tmp_path / "reports/tables.md").is_file()
    assert run_study(study, store, RunOptions(out=None, local=True)).all_there


@pytest.mark.timeout(200)
def test_a_stop_is_heard_in_the_middle_of_a_long_epoch(tmp_path):
    attack = {"epsilon": "0.1", "step_size": "0.05", "steps": 500}
    tiny(tmp_path, **ONE, train_images=None, train={**TINY["train"], "batch_size": 2, "attack": attack})
    words = ["--study", "tiny.yaml", "--store", "store", "--out", "reports", "--local", "--yes"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep.run", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + patience(100)
    while not list(tmp_path.glob("store/trials/*/progress.json")):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=patience(60))
    assert process.returncode == 130 and "Traceback" not in output and "to go on: " in output, output
    assert not open_store(tmp_path / "store").paths(layout.LEASES)  # it had the time to give them back
