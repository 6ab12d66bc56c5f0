"""The function that Tune runs, called by hand: from what the store holds of a piece to its record."""

import textwrap
import time
from contextlib import contextmanager

import pytest
import torch

from sweep.store import layout, leases
from sweep.store.leases import claim, holder_here, take
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.work import worker
from sweep.work.pieces import Setting
from sweep.work.queue import Queue
from sweep.work.trainable import trainable
from tests.patience import patience
from tests.sweep.tiny_study import TINY, tiny

SMALL = {"methods": {"at": {}}, "seeds": [0], "search": None, "train_images": 72}
PGD = {"attacks": ["pgd-20"], "epsilon": "0.1", "images": 20}


class Bench:
    """The pieces of a tiny study in the order of a sweep, and what they report."""

    def __init__(self, folder, **changes):
        self.study, self.store = tiny(folder, **{**SMALL, **changes}), open_store(folder / "store")
        self.queue = Queue(self.study, self.store)
        self.setting = Setting(self.store.uri, str(folder), self.study.name)
        self.reports = []

    def next(self):
        item = self.queue.next()
        assert item is not None
        return item

    def config(self, item=None, **changes):
        return {**(item or self.next()).piece.tune_config(self.study.name), **changes}

    def do(self, item):
        metrics = trainable(self.config(item), self.setting, self.reports.append)
        self.queue.finished(item, metrics)
        return metrics


@pytest.fixture
def bench(tmp_path):
    made = []

    def make(**changes):
        made.append(Bench(tmp_path, **changes))
        return made[-1]

    yield make
    for one in made:
        one.queue.close()


def log_of(store, trial):
    return store.read(layout.trial_file(trial, layout.LOG)).decode()


def test_a_whole_study_is_done_piece_by_piece_from_plain_configs(bench):
    here = bench(methods={"sovr": {}}, search={"sovr": {"candidates": 2, "seed": 1000}}, evaluation=PGD)
    metrics = {}
    while not here.queue.complete:
        item = here.queue.next()
        if item is not None:
            metrics[item.piece.title] = here.do(item)
    assert {name.split(" · ")[-1] for name in metrics} >= {"sovr candidate 0 seed 1000", "sovr seed 0", "pgd-20"}
    record = here.store.trial_record(here.store.manifest("tiny").cells[0].trial)
    assert metrics["sovr seed 0"]["state"] == record.status == "done"
    assert metrics["sovr seed 0"].items() >= record.metrics.items()
    (path, *_) = here.store.record_paths(EvaluationRecord)
    assert here.store.usable(EvaluationRecord, path).accuracy in {
        values["accuracy"] for name, values in metrics.items() if "pgd-20" in name
    }
    assert not here.store.paths(layout.LEASES)


def test_what_is_stored_is_returned_and_not_done_again(bench):
    here = bench()
    config = here.config()
    first = trainable(config, here.setting)
    log = log_of(here.store, config["trial"])
    assert trainable(config, here.setting) == {**first, "stored": True}
    assert log_of(here.store, config["trial"]) == log


def test_a_failed_record_is_done_again_when_it_is_asked_for(bench):
    here = bench()
    item = here.next()
    here.store.write_record(item.piece.failed_record("no memory", [], ""))
    again = Setting(here.store.uri, here.setting.data_dir, retry_failed=True)
    assert trainable(here.config(item), here.setting)["state"] == "failed"
    assert trainable(here.config(item), again)["state"] == "done"


def test_a_piece_that_another_driver_does_is_taken_and_leaves_no_trace(bench):
    here = bench()
    item = here.next()
    with take(here.store, item.piece.lease, owner="another"):
        assert trainable(here.config(item), here.setting) == {"state": "taken"}
    assert not here.store.paths(layout.TRIALS)
    assert trainable(here.config(item), here.setting)["state"] == "done"


def test_the_lease_of_a_worker_that_is_known_to_be_dead_is_taken_over_at_once(bench):
    here = bench()
    item = here.next()
    far = holder_here(60.0, "trial 7").model_copy(update={"host": "far boot", "pid": 7})
    claim(here.store, item.piece.lease, far)
    assert trainable(here.config(item), here.setting)["state"] == "taken"
    assert trainable(here.config(item, dead_owners=["trial 7"]), here.setting)["state"] == "done"


def test_the_chunks_of_an_attack_that_others_have_are_left_to_them(bench):
    here = bench(evaluation={**PGD, "shards": 2, "batch_size": 5})
    here.do(here.next())
    item = here.next()
    with take(here.store, f"{item.piece.lease}~-10", owner="another"):
        assert trainable(here.config(item), here.setting) == {"state": "shared"}
    shards = here.store.paths(item.piece.evaluation.folder)
    assert sum("shard" in path for path in shards) == 2  # the batches of the first chunk
    assert trainable(here.config(item), here.setting)["state"] == "done"


@contextmanager
def clock(monkeypatch):
    """The clock of the leases, which a test can put forward: a machine that slept."""
    ahead = [0.0]
    real = leases.elapsed
    monkeypatch.setattr(leases, "elapsed", lambda: real() + ahead[0])
    yield ahead


@pytest.mark.parametrize("stage", ["train", "attack"])
def test_a_lease_that_is_lost_ends_the_piece_in_the_middle_as_taken(bench, monkeypatch, stage):
    """The machine slept, and another driver's worker took the piece over."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.3)
    attacks = {"attacks": ["square"], "epsilon": "0.1", "images": 20, "batch_size": 5}
    here = bench(train={**TINY["train"], "epochs": 3 if stage == "attack" else 20_000}, evaluation=attacks)
    if stage == "attack":
        here.do(here.next())
    item, stolen = here.next(), []
    other = holder_here(60.0, "another").model_copy(update={"host": "far boot", "pid": 7})
    end = time.monotonic() + patience(60)

    def steal(metrics):
        here.reports.append(metrics)
        if not stolen and "node" not in metrics:
            (path,) = here.store.paths(layout.LEASES)
            lease = path.removeprefix(f"{layout.LEASES}/").rsplit(".", 2)[0]
            claim(here.store, lease, other)  # looks at it for the first time
            ahead[0] += 1000.0
            stolen.append(claim(here.store, lease, other))
        assert time.monotonic() < end, "it goes on without its lease"

    with clock(monkeypatch) as ahead:
        eager = Setting(here.store.uri, here.setting.data_dir, sign_seconds=0.0)
        assert trainable(here.config(item), eager, steal) == {"state": "taken"}
    assert stolen[0] and item.piece.stored(here.store) is None
    assert set(here.store.paths(layout.LEASES)) == set(stolen[0])  # the other one's stays


METHOD = """
    import errno
    from dataclasses import dataclass
    from trainers.method import Method

    @dataclass(frozen=True)
    class Faulty(Method):
        def loss(self, model, images, labels, attack):
            raise {fault}
"""


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("RuntimeError('by itself')", "trial"),
        ("ValueError('of the code')", "loss"),
        ("OSError(errno.ENOSPC, 'No space left on device')", "machine"),
        ("__import__('torch').OutOfMemoryError('CUDA out of memory')", "memory"),
    ],
)
def test_a_piece_that_raises_says_first_whose_fault_it_is(bench, tmp_path, fault, kind):
    (tmp_path / "faulty.py").write_text(textwrap.dedent(METHOD).format(fault=fault))
    here = bench(plugins=(tmp_path / "faulty.py",), methods={"faulty": {}})
    item = here.next()
    with pytest.raises((RuntimeError, ValueError, OSError)):
        trainable(here.config(item), here.setting, here.reports.append)
    assert here.reports[-1]["failure"]["kind"] == kind
    assert "Traceback" in log_of(here.store, item.piece.trial) and not here.store.paths(layout.LEASES)


def test_a_node_that_cannot_work_holds_its_device_and_says_why(bench, monkeypatch):
    monkeypatch.setattr(worker, "HOLD_SECONDS", 0.01)
    here = bench()
    config = here.config()
    other = Setting(here.store.uri, here.setting.data_dir, versions={"torch": "9.9.9"})
    metrics = trainable(config, other, here.reports.append)
    assert metrics["state"] == "held" and "torch" in metrics["fault"] and "9.9.9" in metrics["fault"]
    assert metrics in here.reports and not here.store.paths(layout.TRIALS)
    judged = {**config, "bad_nodes": {"n1": "2 pieces failed there at once"}}  # by the driver
    assert trainable(judged, here.setting, node="n1")["fault"] == "2 pieces failed there at once"
    assert trainable(judged, here.setting, node="n2")["state"] == "done"


def test_a_piece_is_not_tried_again_where_it_failed_or_does_not_fit(bench, monkeypatch):
    monkeypatch.setattr(worker, "ELSEWHERE_SECONDS", 0.01)
    here = bench()
    item = here.next()
    assert trainable(here.config(item, avoided_nodes=["n1"]), here.setting, node="n1")["state"] == "elsewhere"
    assert trainable(here.config(item, gpu_bytes=10**9), here.setting, node="n1")["state"] == "elsewhere"
    assert not here.store.paths(layout.TRIALS)
    assert trainable(here.config(item, avoided_nodes=["n1"]), here.setting, node="n2")["state"] == "done"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without GPUs")
def test_a_piece_that_was_promised_a_gpu_never_runs_on_the_cpu(bench, monkeypatch):
    monkeypatch.setattr(worker, "HOLD_SECONDS", 0.01)
    here = bench()
    metrics = trainable(here.config(resources={"gpu": 1.0, "cpu": 1.0}), here.setting)
    assert metrics["state"] == "held" and f"torch {torch.__version__}" in metrics["fault"]
    assert "--set resources.gpus=0" in metrics["fault"] and not here.store.paths(layout.TRIALS)


def test_the_driver_hears_of_the_node_before_anything_else(bench):
    here = bench()
    trainable(here.config(), here.setting, here.reports.append, "n1")
    assert here.reports[0].items() >= {"node": "n1", "gpu": None, "gpu_bytes": 0}.items() and here.reports[0]["host"]


def test_a_training_leaves_its_record_its_weights_and_its_log_alone(bench):
    here = bench()
    item = here.next()
    trainable(here.config(item), here.setting)
    files = {path.rpartition("/")[2] for path in here.store.paths(layout.trial_folder(item.piece.trial))}
    assert files == {layout.RECORD, layout.LOG, "last.safetensors", "best_validation.safetensors"}
    assert set(here.store.trial_record(item.piece.trial).checkpoints) == {"last", "best_validation"}
