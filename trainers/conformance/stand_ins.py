"""Attacks for oracle cases: the project's own with the listed noise, watched; or images that the case supplies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from trainers.conformance.oracle import Case, OracleFault
from trainers.method import Objective
from trainers.perturbation.projected_ascent import ProjectedAscent


class Watched:
    """An attack that also keeps what it found and what `once` made."""

    def __init__(self, attack: ProjectedAscent) -> None:
        self.attack = attack
        self.steps = attack.steps
        self.found: Tensor | None = None
        self.crafted: Any = None

    def __call__(self, model: nn.Module, images: Tensor, objective: Objective, **options: Any) -> Tensor:
        self.found = self.attack(model, images, objective, **options)
        return self.found

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        return self.attack.logits(model, images)

    def once(self, craft: Callable[[], Any]) -> Any:
        self.crafted = self.attack.once(craft)
        return self.crafted


class Supplied:
    """An attack whose result the case prescribes, for cases that compare the loss alone."""

    def __init__(self, adversarial: Tensor, observed: list[Tensor] | None = None) -> None:
        self.adversarial = adversarial
        self.observed = observed or []
        self.steps = len(self.observed)

    def __call__(
        self,
        model: nn.Module,
        images: Tensor,
        objective: Objective,
        *,
        epsilon: Tensor | float | None = None,
        step_size: Tensor | float | None = None,
        observe: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        for logits in self.observed if observe is not None else []:
            observe(logits)  # type: ignore[misc]  # guarded in the line above
        return self.adversarial

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        return torch.zeros(0)  # a target for the search that does not take place

    def once(self, craft: Callable[[], Any]) -> Any:
        return craft()


def linf_attack(case: Case, *, start: str, mode: str) -> ProjectedAscent:
    """The attack of training and evaluation with the case's radius, steps and noise."""
    noise = case.gauss if start == "gauss" else case.unit_noise
    return ProjectedAscent(
        epsilon=case.number("eps"),
        step_size=case.number("step"),
        steps=case.whole("steps"),
        start=start,
        mode=mode,
        draw=lambda images: noise.flatten()[: images.numel()].view_as(images),
    )


def written_start(case: Case) -> str:
    """How the case's text names the start of an attack."""
    start = str(case.hyper.get("start", "0"))
    if start == "0":
        return "none"
    if "unit_noise" not in start:
        raise OracleFault(f"hyper 'start' = {start!r} must be '0' or say what 'unit_noise' is multiplied with")
    return "uniform"
