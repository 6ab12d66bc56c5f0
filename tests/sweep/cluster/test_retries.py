"""Which failures are worth another attempt: those of the machine, not those that the loss makes each time."""

import textwrap

import pytest

from sweep.engine import run_study
from sweep.store import layout
from sweep.store.opening import open_store
from sweep.work.options import RunOptions
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
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Each trial's record and log after a sweep that may retry once."""
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
    run_study(study, store, RunOptions(data_dir=folder, out=None))
    return {
        cell.label: (store.trial_record(cell.trial), store.read(layout.trial_file(cell.trial, layout.LOG)).decode())
        for cell in store.manifest("tiny").cells
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("label", "attempts", "reason"),
    [
        ("returns_float", 1, "Faulty: loss must return a tensor, but returned float"),
        ("misspells", 1, "has no attribute 'cross_entropie'"),
        ("loses_disk", 2, "no such device"),
    ],
)
def test_a_fault_of_the_loss_is_recorded_at_once_and_one_of_the_machine_is_tried_again(logs, label, attempts, reason):
    record, log = logs[label]
    assert record.status == "failed" and reason in record.reason
    assert log.count(f" train {label} on ") == attempts
