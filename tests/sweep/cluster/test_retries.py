"""Which failures are worth another attempt: those of the machine, not those that the loss makes each time."""

import textwrap
from types import SimpleNamespace

import pytest

from sweep import cli
from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.store import layout
from sweep.store.opening import open_store
from sweep.store.usage import usages, used_hours
from tests.sweep.tiny_study import tiny

METHOD = """
    from dataclasses import dataclass
    import torch.nn.functional as F
    from trainers.method import Method

    @dataclass(frozen=True)
    class Faulty(Method):
        def loss(self, model, images, labels, attack):
            {fault}
"""
FAULTS = {
    "returns_float": "return F.cross_entropy(model(images), labels).item()",
    "misspells": "return F.cross_entropie(model(images), labels)",
    "loses_disk": "raise OSError('no such device')",
    "lacks_memory": "import torch; raise torch.OutOfMemoryError('CUDA out of memory')",
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """After a sweep that may retry once: each trial's record and log, the summary and the store."""
    folder = tmp_path_factory.mktemp("retries")
    for name, fault in FAULTS.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(METHOD).format(fault=fault))
    study = tiny(
        folder,
        plugins=[folder / f"{name}.py" for name in FAULTS],
        seeds=[0],
        methods={name: {} for name in FAULTS},
        search=None,
        resources={"retries": 1},
    )
    store = open_store(folder / "store")
    summary = run_study(study, store, RunOptions(data_dir=folder, out=None))
    trials = {
        cell.label: (store.trial_record(cell.trial), store.read(layout.trial_file(cell.trial, layout.LOG)).decode())
        for cell in store.manifest("tiny").cells
    }
    return SimpleNamespace(summary=summary, trials=trials, store=store)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("label", "attempts", "reason"),
    [
        ("returns_float", 1, "Faulty: loss must return a tensor, but returned float"),
        ("misspells", 1, "has no attribute 'cross_entropie'"),
        ("lacks_memory", 1, "Two ways out: a device with more memory"),
    ],
)
def test_a_fault_of_the_loss_is_recorded_at_once(swept, label, attempts, reason):
    record, log = swept.trials[label]
    assert record.status == "failed" and reason in record.reason
    assert log.count(f" train {label} on ") == attempts


def test_a_fault_of_the_machine_is_tried_again_and_never_recorded(swept):
    record, log = swept.trials["loses_disk"]
    assert record is None and log.count(" train loses_disk on ") == 2
    assert not swept.summary.complete and "no such device" in swept.summary.text()


def test_what_a_device_has_done_is_counted_in_the_store_and_shown(swept, capsys):
    used = used_hours(usages(swept.store, "tiny"))
    assert 0 < used == pytest.approx(swept.summary.device_hours, rel=0.01)
    with pytest.raises(SystemExit):
        cli.main(["status", "--store", swept.store.uri])
    assert "device-hours used" in capsys.readouterr().out
