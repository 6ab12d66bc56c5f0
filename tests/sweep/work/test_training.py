"""A training in a worker: what a kill leaves in a remote store belongs together; a long epoch gives signs of life."""

import hashlib
import math

import pytest
import torch

from sweep.store import layout
from sweep.store.opening import open_store
from sweep.store.s3 import S3Store
from sweep.work import training
from sweep.work.pieces import Setting, Training
from sweep.work.queue import Queue
from sweep.work.trainable import trainable
from tests.sweep.tiny_study import TINY, tiny
from trainers.loop import heartbeat
from trainers.loop import train as training_module

SMALL = {"methods": {"at": {}}, "seeds": [0], "search": None, "train_images": 72}


class Killed(BaseException):
    """No code gets to answer it, as in a kill."""


def training_of(study, store):
    queue = Queue(study, store)
    item = queue.next()
    queue.close()
    assert type(item.piece) is Training
    return item.piece


def run(piece, store, folder, report=lambda metrics: None, *, sign_seconds=20.0, **more):
    setting = Setting(store.uri, str(folder), sign_seconds=sign_seconds)
    return trainable({**piece.tune_config("tiny"), **more}, setting, report)


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

    def run_until(store, piece, change, **more):
        """Return the number of changes that were made."""
        made = 0

        def counted(original):
            def act(self, *arguments, **options):
                nonlocal made
                if made == change:
                    raise Killed
                made += 1
                return original(self, *arguments, **options)

            return act

        with monkeypatch.context() as patch:
            for name, original in methods.items():
                patch.setattr(S3Store, name, counted(original))
            try:
                run(piece, store, tmp_path, **more)
            except Killed:
                pass
        return made

    for change in range(1, 60):
        store = open_store(f"s3://results/kill{change}?endpoint_override={endpoint}&region=us-east-1")
        piece = training_of(study, store)
        last = run_until(store, piece, change, owner="killed")
        resumed += store.exists(layout.trial_file(piece.trial, layout.RESUME))
        monkeypatch.setattr(training_module, "training_step", other_step(step))
        run_until(store, piece, None, dead_owners=["killed"])
        monkeypatch.setattr(training_module, "training_step", step)
        record = store.trial_record(piece.trial)
        assert record.status == "done" and len(record.curve) == 2
        for name, kept in record.checkpoints.items():
            content = store.read(layout.weights(piece.trial, name))
            assert hashlib.sha256(content).hexdigest() == kept.sha256, (change, name)
        if last < change:
            break
    assert last > 8 and resumed > 2  # the whole training was walked through, and some kills came after a saved epoch


def test_every_step_is_heard_and_signs_come_as_often_as_asked(tmp_path):
    study, store = tiny(tmp_path, **SMALL), open_store(tmp_path / "store")
    heard = []
    run(training_of(study, store), store, tmp_path, heard.append, sign_seconds=0.0)
    assert "node" in heard.pop(0)
    steps = [report["steps"] for report in heard if "steps" in report]
    epochs = [index for index, report in enumerate(heard) if "epoch" in report]
    told = [row["epoch"] for index in epochs for row in (*heard[index].get("earlier", ()), heard[index])]
    assert told == [0, 1, 2] and steps == sorted(steps) and steps[-1] >= 3 * 1 + 3  # a batch and a selection an epoch
    assert all("steps" in report for report in heard[: epochs[0]])  # before the first epoch has ended
    beats = []
    with heartbeat.heard_by(lambda: beats.append(1)):
        heartbeat.beat()
    heartbeat.beat()
    assert beats == [1]


@pytest.mark.parametrize(("seconds", "reports"), [(0.0, [[0], [1], [2]]), (math.inf, [[0, 1, 2]])])
def test_quick_epochs_are_reported_together_and_none_is_lost(tmp_path, monkeypatch, seconds, reports):
    monkeypatch.setattr(training, "REPORT_SECONDS", seconds)
    study, store, heard = tiny(tmp_path, **SMALL), open_store(tmp_path / "store"), []
    piece = training_of(study, store)
    run(piece, store, tmp_path, heard.append)
    rows = [(*report.get("earlier", ()), report) for report in heard if "epoch" in report]
    assert [[row["epoch"] for row in together] for together in rows] == reports
    losses = [row["train_loss"] for together in rows for row in together]
    assert losses == [row["train_loss"] for row in store.trial_record(piece.trial).curve]


def test_a_batch_of_autoattack_gives_signs_while_it_runs(tmp_path):
    evaluation = {"attacks": ["square"], "suite": None, "epsilon": "0.1", "images": 8, "batch_size": 8}
    study, store = tiny(tmp_path, evaluation=evaluation, **SMALL), open_store(tmp_path / "store")
    queue, heard = Queue(study, store), []
    for stage in ("train", "attack"):
        item = queue.next()
        heard.clear()
        queue.finished(item, run(item.piece, store, tmp_path, heard.append, sign_seconds=0.0))
        assert item.piece.stage == stage
    queue.close()
    assert queue.complete and sum("steps" in report for report in heard) > 20  # queries of one batch
