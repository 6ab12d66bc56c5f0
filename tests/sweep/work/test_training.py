"""A training in a worker: what a kill leaves in a remote store belongs together; a long epoch gives signs of life."""

import hashlib
import math

import pytest
import torch

from sweep.cluster import worker
from sweep.store import layout
from sweep.store.opening import open_store
from sweep.store.s3 import S3Store
from sweep.work import training
from sweep.work.tasks import Setting, Training
from sweep.work.work import Work
from tests.sweep.tiny_study import TINY, tiny
from trainers import pulse
from trainers import train as training_module

SMALL = {"methods": {"at": {}}, "seeds": [0], "search": None, "train_images": 72}


class Killed(BaseException):
    """No code gets to answer it, as in a kill."""


def task_of(study, store):
    work = Work(study, store)
    (assigned,) = list(work.ready)
    assert type(assigned.task) is Training
    return assigned.task


def other_step(original):
    """On a GPU the repeated epoch differs."""

    def step(model, *arguments, **named):
        found = original(model, *arguments, **named)
        with torch.no_grad():
            next(model.parameters()).add_(0.01)
        return found

    return step


def test_a_kill_between_any_two_changes_of_a_remote_store_leaves_weights_as_their_checksums_say(
    tmp_path, endpoint, monkeypatch
):
    monkeypatch.setattr(training, "PUSH_SECONDS", 0.0)
    study = tiny(tmp_path, train={**TINY["train"], "epochs": 2}, **SMALL)
    methods = {name: getattr(S3Store, name) for name in ("write", "push_file", "delete")}
    step, last, resumed = training_module.training_step, 0, 0

    def run_until(store, task, change):
        """The number of changes that were made."""
        made = 0

        def counted(original):
            def act(self, *arguments):
                nonlocal made
                if made == change:
                    raise Killed
                made += 1
                return original(self, *arguments)

            return act

        with monkeypatch.context() as patch:
            for name, original in methods.items():
                patch.setattr(S3Store, name, counted(original))
            try:
                worker.run(task, Setting(store.uri, str(tmp_path)), lambda _: None)
            except Killed:
                pass
        return made

    for change in range(1, 60):
        store = open_store(f"s3://results/kill{change}?endpoint_override={endpoint}&region=us-east-1")
        task = task_of(study, store)
        last = run_until(store, task, change)
        resumed += store.exists(layout.trial_file(task.trial, layout.RESUME))
        monkeypatch.setattr(training_module, "training_step", other_step(step))
        run_until(store, task, None)
        monkeypatch.setattr(training_module, "training_step", step)
        record = store.trial_record(task.trial)
        assert record.status == "done" and len(record.curve) == 2
        for name, kept in record.checkpoints.items():
            content = store.read(layout.weights(task.trial, name))
            assert hashlib.sha256(content).hexdigest() == kept.sha256, (change, name)
        if last < change:
            break
    assert last > 8 and resumed > 2  # the whole training was walked through, and some kills came after a saved epoch


def test_every_step_is_heard_and_signs_come_as_often_as_asked(tmp_path):
    study, store = tiny(tmp_path, **SMALL), open_store(tmp_path / "store")
    task, heard = task_of(study, store), []
    worker.run(task, Setting(store.uri, str(tmp_path), sign_seconds=0.0), heard.append)
    steps = [report["steps"] for report in heard if "steps" in report]
    epochs = [index for index, report in enumerate(heard) if "epoch" in report]
    told = [row["epoch"] for index in epochs for row in (*heard[index].get("earlier", ()), heard[index])]
    assert told == [0, 1, 2] and steps == sorted(steps) and steps[-1] >= 3 * 1 + 3  # a batch and a selection an epoch
    assert all("steps" in report for report in heard[: epochs[0]])  # before the first epoch has ended
    beats = []
    with pulse.heard_by(lambda: beats.append(1)):
        pulse.beat()
    pulse.beat()
    assert beats == [1]


@pytest.mark.parametrize(("seconds", "reports"), [(0.0, [[0], [1], [2]]), (math.inf, [[0, 1, 2]])])
def test_quick_epochs_are_told_together_and_none_is_lost(tmp_path, monkeypatch, seconds, reports):
    monkeypatch.setattr(training, "TELL_SECONDS", seconds)
    study, store, heard = tiny(tmp_path, **SMALL), open_store(tmp_path / "store"), []
    task = task_of(study, store)
    worker.run(task, Setting(store.uri, str(tmp_path)), heard.append)
    rows = [(*report.get("earlier", ()), report) for report in heard if "epoch" in report]
    assert [[row["epoch"] for row in together] for together in rows] == reports
    losses = [row["train_loss"] for together in rows for row in together]
    assert losses == [row["train_loss"] for row in store.trial_record(task.trial).curve]


def test_a_batch_of_autoattack_gives_signs_while_it_runs(tmp_path):
    evaluation = {"attacks": ["square"], "suite": None, "epsilon": "0.1", "images": 8, "batch_size": 8}
    study, store = tiny(tmp_path, evaluation=evaluation, **SMALL), open_store(tmp_path / "store")
    work, setting, heard = Work(study, store), Setting(store.uri, str(tmp_path), sign_seconds=0.0), []
    while (assigned := work.next_task()) is not None:
        heard.clear()
        worker.run(assigned.task, setting, heard.append)
        work.finished(assigned)
    work.close()
    assert assigned is None and sum("steps" in report for report in heard) > 20  # queries of one batch, the last piece


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without GPUs")
def test_a_task_that_was_promised_a_gpu_never_runs_on_the_cpu(tmp_path):
    study, store = tiny(tmp_path, **SMALL), open_store(tmp_path / "store")
    with pytest.raises(worker.NoGpu, match=r"holds a GPU that torch .* cannot use .*--set resources.gpus=0"):
        worker.run(task_of(study, store), Setting(store.uri, str(tmp_path), gpus=1.0), lambda _: None)
