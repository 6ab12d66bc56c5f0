"""The contract of every training method: checks shared by the tests and `python -m sweep.check`.

A check raises `Broken` with a message in plain words. Any other exception counts as an error of the method itself.
"""

from __future__ import annotations

import copy
import math
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import search_spaces
from trainers import composition, models
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.loop import short_training
from trainers.loop.short_training import LATE, SHAPE
from trainers.loop.step import CheckedLoss, training_step
from trainers.method import Batch, Method, declaration_faults
from trainers.plugins import registry


class Broken(Exception):
    """A broken promise; the message says what to change."""


@dataclass(frozen=True)
class Check:
    """A promise in plain words, and the function that checks it for the method of a given name."""

    promise: str
    run: Callable[[str], None]


@dataclass(frozen=True)
class CheckResult:
    """The result of one check; `fault` is None if the promise is kept."""

    promise: str
    fault: str | None


def examine(name: str) -> Iterator[CheckResult]:
    """Run every check that applies to a method such as sovr or sovr+awp, one after the other."""
    for check in checks(name):
        yield CheckResult(check.promise, fault_of(check, name))


def fault_of(check: Check, name: str) -> str | None:
    """Return None if the promise is kept, otherwise one line that says what is wrong."""
    try:
        check.run(name)
    except Broken as broken:
        return str(broken)
    except (Exception, SystemExit) as error:
        # The loss under test may raise anything. Its author wants the line in their own file, not a traceback.
        return f"raised {type(error).__name__}: {error}{_raised_at(error, name)}"
    return None


def _raised_at(error: BaseException, name: str) -> str:
    file = sys.modules[registry.METHODS.get(composition.parse(name)[0]).__module__].__file__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if file and lines else ""


def checks(name: str) -> list[Check]:
    """Return the checks that apply to a method, identities with other methods included."""
    base, wrappers = composition.parse(name)
    applicable = [
        Check("declares its hyperparameters with legal defaults", declares_hyperparameters),
        Check("gives a finite loss", gives_finite_loss),
        Check("takes a batch of one", takes_batch_of_one),
        Check("takes a last batch of odd size", takes_odd_batch),
        Check("takes 100 classes", takes_many_classes),
        Check("its gradient reaches every parameter", gradient_reaches_parameters),
        Check("leaves the model's mode and weights alone", leaves_model_alone),
        Check("makes the same step with the same seed", repeats_its_step),
        Check("a short training lowers its own loss", lowers_its_loss),
        Check("an interrupted training ends with the same weights", resumes_exactly),
    ]
    if search_spaces.space(name):
        applicable.append(Check("its search space lies within its legal values", searches_legal_values))
    if not wrappers:
        applicable += [_identity(base, *identity) for identity in IDENTITIES.get(base, ())]
    return applicable


# Settings under which a method equals another one.
IDENTITIES: dict[str, tuple[tuple[dict[str, Any], str], ...]] = {
    "sovr": (({"M": 0}, "at"), ({"M": 100, "lam": 1.0}, "ovr")),
    "tsovr": (({"M": 0}, "trades"),),
    "gairat": (({"Lambda": math.inf, "warmup_epochs": 0}, "at"),),
    "weighted_ce": (({"weight": 1.0}, "at"),),
    "weighted_ovr": (({"weight": 1.0}, "ovr"),),
}


def _identity(base: str, settings: dict[str, Any], other: str) -> Check:
    def equals_other(name: str) -> None:
        gradients = [
            _Step(method, hyperparameters=hyperparameters, same_attack=True).gradients()
            for method, hyperparameters in ((name, settings), (other, {}))
        ]
        for parameter, gradient in gradients[0].items():
            if not torch.allclose(gradient, gradients[1][parameter], rtol=1e-4, atol=1e-6):
                raise Broken(f"the gradients of {parameter} differ from those of {other}")

    listed = ", ".join(f"{key} = {value}" for key, value in settings.items())
    return Check(f"with {listed} equals {other}", equals_other)


class _Step:
    """A small network that is right on about half of its labels, a batch, and the method after its warm-ups."""

    def __init__(
        self,
        name: str,
        *,
        size: int = 8,
        classes: int = 10,
        epoch: int = LATE,
        hyperparameters: dict[str, Any] | None = None,
        same_attack: bool = False,
    ) -> None:
        torch.manual_seed(0)
        _, wrappers = composition.parse(name)
        built = composition.build(name, hyperparameters)
        self.method: Method = built.at_epoch(epoch)
        self.model: nn.Module = models.build("small_cnn", classes, shape=SHAPE).train()
        images = torch.rand(size, *SHAPE)
        with torch.no_grad():
            list(self.model.parameters())[-2].mul_(30.0)  # confident enough that MMA finds a boundary
            predicted = copy.deepcopy(self.model)(images).argmax(dim=1)
        labels = torch.where(torch.arange(size) % 2 == 0, predicted, torch.randint(classes, (size,)))
        state = built.new_state(2 * size)
        self.batch = Batch(images, labels, torch.arange(size), state)
        start, mode = ("uniform", "train") if same_attack else (built.start, built.mode)
        self.attack = ProjectedAscent(0.1, 0.05, 3, start=start, mode=mode, generator=torch.Generator().manual_seed(1))
        self.wrappers = [registry.WRAPPERS.get(wrapper)().begin(self.model, 1) for wrapper in wrappers]

    def loss(self) -> Tensor:
        method: Method = CheckedLoss(self.method)
        for wrapper in self.wrappers:
            method = wrapper.around(method)
        return method.batch_loss(self.model, self.batch, self.attack)

    def gradients(self) -> dict[str, Tensor]:
        self.loss().backward()
        return {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}

    def update(self) -> None:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        training_step(self.model, optimizer, self.method, self.batch, self.attack, wrappers=self.wrappers)


def declares_hyperparameters(name: str) -> None:
    method = registry.METHODS.get(composition.parse(name)[0])
    decorated = vars(method).get("__dataclass_params__")  # of this class, not of its base class
    if decorated is None or not decorated.frozen:
        raise Broken(f"decorate {method.__name__} with @dataclass(frozen=True)")
    faults = declaration_faults(method)
    if faults:
        raise Broken(f"{'; '.join(faults)}, as in name: float = hyperparameter(0.5, low=0.0, high=1.0)")
    composition.build(name)


def gives_finite_loss(name: str) -> None:
    for epoch in (0, LATE):
        _require_finite(_Step(name, epoch=epoch), f"in epoch {epoch}" if epoch == 0 else "after the warm-up")


def takes_batch_of_one(name: str) -> None:
    _require_finite(_Step(name, size=1), "for a batch of one")


def takes_odd_batch(name: str) -> None:
    _require_finite(_Step(name, size=7), "for a batch of 7")


def takes_many_classes(name: str) -> None:
    _require_finite(_Step(name, classes=100), "with 100 classes")


def _require_finite(step: _Step, when: str) -> None:
    loss = step.loss()
    if loss.dim() != 0:
        raise Broken(f"the loss must be one number, but has shape {tuple(loss.shape)} {when}: take its mean")
    if not math.isfinite(loss.item()):
        raise Broken(f"the loss is {loss.item()} {when}")
    loss.backward()
    broken = [key for key, p in step.model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    if broken:
        raise Broken(f"the gradients of {', '.join(broken)} are not finite {when}")


def gradient_reaches_parameters(name: str) -> None:
    step = _Step(name)
    reached = {key for key, gradient in step.gradients().items() if bool(gradient.abs().max() > 0)}
    missed = [key for key, _ in step.model.named_parameters() if key not in reached]
    if missed:
        raise Broken(f"no gradient reaches {', '.join(missed)}; is something detached, or computed under no_grad?")


def leaves_model_alone(name: str) -> None:
    base, _ = composition.parse(name)  # AWP moves the weights on purpose and moves them back after the step
    step = _Step(base)
    before = {key: parameter.detach().clone() for key, parameter in step.model.named_parameters()}
    step.loss()
    for key, parameter in step.model.named_parameters():
        if not torch.equal(parameter, before[key]):
            raise Broken(f"computing the loss changed the weight {key}")
        if not parameter.requires_grad:
            raise Broken(f"computing the loss switched off the gradient of {key}")
        if parameter.grad is not None:
            raise Broken(f"computing the loss left a gradient on {key}; use the attack, or torch.autograd.grad")
    if not all(module.training for module in step.model.modules()):
        raise Broken(
            "computing the loss left the model in eval mode; do not change the mode, the training loop sets it"
        )


def repeats_its_step(name: str) -> None:
    steps = [_Step(name), _Step(name)]
    for step in steps:
        torch.manual_seed(2)
        step.update()
    for (key, first), second in zip(
        steps[0].model.state_dict().items(), steps[1].model.state_dict().values(), strict=True
    ):
        if not torch.equal(first, second):
            raise Broken(f"two steps with the same seed gave different values of {key}")


def lowers_its_loss(name: str) -> None:
    first, last = short_training.repeated_steps(name, 20)
    if not last < first:
        raise Broken(f"20 steps on the same images moved the loss from {first:.4g} to {last:.4g}")


def resumes_exactly(name: str) -> None:
    fault = short_training.difference_after_interruption(name)
    if fault:
        raise Broken(fault)


def searches_legal_values(name: str) -> None:
    for kind in search_spaces.KINDS:
        space = search_spaces.space(name, kind)
        corners: list[dict[str, Any]] = [{}, {}]
        for key, distribution in space.items():
            choices = getattr(distribution, "choices", None)
            ends = (choices[0], choices[-1]) if choices else (distribution.low, distribution.high)  # type: ignore[attr-defined]
            for corner, end in zip(corners, ends, strict=True):
                corner[key] = end
        for corner in corners:
            composition.build(name, search_spaces.rounded(corner))
