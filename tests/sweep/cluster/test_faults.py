"""Trials that raise, die or hang: the rest goes on, they are retried from their last checkpoint, and then recorded."""

import textwrap

import pytest

from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.store import layout
from sweep.store.opening import open_store
from tests.patience import patience
from tests.sweep.tiny_study import tiny

METHOD = """
    import os, time
    from dataclasses import dataclass
    from pathlib import Path
    import torch.nn.functional as F
    from trainers.method import Method

    MARK = Path({mark!r})
    calls = 0

    @dataclass(frozen=True)
    class Faulty(Method):
        def loss(self, model, images, labels, attack):
            global calls
            calls += 1
            {fault}
            return F.cross_entropy(model(images), labels)
"""
ALWAYS_RAISES = 'raise RuntimeError("the loss is broken")'
# Batches: 120 training images in 4 batches an epoch, so the sixth call is in the second epoch.
DIES_ONCE = "if calls == 6 and not MARK.exists(): MARK.write_text(''); os._exit(1)"
HANGS_ONCE = "if calls == 6 and not MARK.exists(): MARK.write_text(''); time.sleep(3600)"


def plugin(folder, name, fault):
    path = folder / f"{name}.py"
    path.write_text(textwrap.dedent(METHOD).format(mark=str(folder / f"{name}.mark"), fault=fault))
    return path


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    files = (
        plugin(folder, "raises", ALWAYS_RAISES),
        plugin(folder, "dies_once", DIES_ONCE),
        plugin(folder, "hangs_once", HANGS_ONCE),
    )
    study = tiny(
        folder,
        plugins=files,
        seeds=[0],
        methods={"st": {}, "raises": {}, "dies_once": {}, "hangs_once": {}},
        search=None,
        resources={"retries": 1, "hang_minutes": patience(12) / 60},
    )
    store = open_store(folder / "store")
    return study, store, run_study(study, store, RunOptions(data_dir=folder, out=None))


def record_of(store, label):
    cell = next(cell for cell in store.manifest("tiny").cells if cell.label == label)
    return store.trial_record(cell.trial)


def attempts(store, record, label):
    return store.read(layout.trial_file(record.trial, layout.LOG)).decode().count(f" train {label} on ")


@pytest.mark.timeout(300)
def test_a_raising_trial_is_recorded_with_its_log_and_the_command_and_the_rest_goes_on(swept):
    _, store, summary = swept
    record = record_of(store, "raises")
    assert record.status == "failed" and "the loss is broken" in record.reason
    assert any("RuntimeError: the loss is broken" in line for line in record.log)
    assert record.command.endswith("--methods raises --seeds 0 --retry-failed")
    assert attempts(store, record, "raises") == 2  # the first and one retry
    assert record_of(store, "st").status == "done"
    assert not summary.complete and [failure.title for failure in summary.failed] == ["raises seed 0"]
    assert "run it again: " in summary.text() and "the loss is broken" in summary.text()


@pytest.mark.parametrize("label", ["dies_once", "hangs_once"])
def test_a_dead_or_hung_process_is_replaced_and_goes_on_from_its_checkpoint(swept, label):
    _, store, _ = swept
    record = record_of(store, label)
    assert record.status == "done"
    assert attempts(store, record, label) >= 2  # where others are busy, a slow start may count as hung once more
    # The loss is that of ST: neither the fault nor the retry may show in the numbers.
    same = record_of(store, "st")
    kept = ("train_loss", "test_pgd_accuracy", "validation_pgd_accuracy")
    assert [[row[key] for key in kept] for row in record.curve] == [[row[key] for key in kept] for row in same.curve]


def test_a_failed_trial_stays_failed_until_asked(swept):
    study, store, _ = swept
    again = run_study(study, store, RunOptions(out=None, progress=False))
    assert again.all_there and not again.complete
    assert again.failed[0].stored and "--retry-failed" in again.text()
