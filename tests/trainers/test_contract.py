"""Registered methods and wrappers keep the promises of `trainers.plugins.contract`, and the checks notice faults."""

import pytest

from trainers import composition
from trainers.plugins import contract, registry

FOUND = composition.method_names()
# Whole trainings take their time: of the compositions, those of the paper and those with a state of their own.
TRAINED = {*FOUND, "at+awp", "sovr+awp", "trades+awp", "tsovr+awp", "gairat+awp", "mma+awp"}
AVERAGED = ("sovr+seat", "mma+seat", "at+awp+seat", "sovr+ddpm", "tsovr+ddpm", "mma+ddpm")


def _cases():
    for name in [*FOUND, *(f"{name}+awp" for name in FOUND)]:
        for check in contract.checks(name):
            if name in TRAINED or check.run not in (contract.lowers_its_loss, contract.resumes_exactly):
                yield pytest.param(name, check, id=f"{name}: {check.promise}")
    for name in AVERAGED:  # averaging never touches a step; what matters is the training that keeps the average
        yield pytest.param(name, contract.Check("resumes exactly", contract.resumes_exactly), id=f"{name}: resumes")


@pytest.mark.parametrize(("name", "check"), list(_cases()))
def test_every_method_keeps_its_promises(name, check):
    assert contract.fault_of(check, name) is None


HEADER = """
from dataclasses import dataclass
import torch.nn.functional as F
from trainers.method import Method, hyperparameter

@dataclass(frozen=True)
class Spoilt(Method):
    def loss(self, model, images, labels, attack):
"""


@pytest.mark.parametrize(
    ("check", "body", "message"),
    [
        (contract.gives_finite_loss, "return F.cross_entropy(model(images), labels) / 0", "the loss is inf"),
        (contract.gives_finite_loss, "return F.cross_entropy(model(images), labels, reduction='none')", "one number"),
        (contract.takes_batch_of_one, "return F.cross_entropy(model(images), labels, reduction='none')", "shape (1,)"),
        (contract.gives_finite_loss, "return 0.5", "loss must return a tensor, but returned float"),
        (contract.gives_finite_loss, "return F.cross_entropy(model(images), labels).detach()", "has no gradient"),
        (contract.gives_finite_loss, "import sys; sys.exit(3)", "raised SystemExit: 3"),
        (contract.takes_batch_of_one, "return F.cross_entropy(model(images), labels.squeeze())", "raised"),
        (contract.takes_many_classes, "return F.nll_loss(model(images)[:, :10], labels)", "raised"),
        (
            contract.gradient_reaches_parameters,
            "return F.cross_entropy(model.fc2.bias[None], labels[:1])",
            "conv1.weight",
        ),
        (contract.leaves_model_alone, "model.eval(); return F.cross_entropy(model(images), labels)", "eval mode"),
        (
            contract.leaves_model_alone,
            "F.cross_entropy(model(images), labels).backward(); return F.cross_entropy(model(images), labels)",
            "left a gradient on",
        ),
        (
            contract.leaves_model_alone,
            "model.fc2.bias.data.add_(1); return F.cross_entropy(model(images), labels)",
            "changed the weight fc2.bias",
        ),
        (contract.lowers_its_loss, "return -F.cross_entropy(model(images), labels).clamp(max=2) + 3", "moved the loss"),
        (
            contract.repeats_its_step,
            "global N; N = globals().get('N', 0) + 1; return N * F.cross_entropy(model(images), labels)",
            "different values",
        ),
        (
            contract.resumes_exactly,
            "global N; N = globals().get('N', 0) + 1; return N * F.cross_entropy(model(images), labels)",
            "after an interruption",
        ),
    ],
)
def test_a_broken_promise_is_noticed_and_named(check, body, message):
    registry.load_source("spoilt", f"{HEADER}        {body}\n")
    fault = contract.fault_of(contract.Check("", check), "spoilt")
    assert fault is not None and message in fault


def test_a_method_without_its_decorator_is_told_so():
    registry.load_source("spoilt", HEADER.replace("@dataclass(frozen=True)", "") + "        return 0\n")
    fault = contract.fault_of(contract.Check("", contract.declares_hyperparameters), "spoilt")
    assert fault == "decorate Spoilt with @dataclass(frozen=True)"


def test_a_false_identity_is_noticed(monkeypatch):
    monkeypatch.setitem(contract.IDENTITIES, "sovr", (({"M": 50, "lam": 0.4}, "at"),))
    (check,) = (check for check in contract.checks("sovr") if "equals at" in check.promise)
    assert "differ from those of at" in (contract.fault_of(check, "sovr") or "")
