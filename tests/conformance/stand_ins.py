"""Attacks for oracle cases: the project's own with recorded noise and results, or one that returns supplied images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.conformance.oracle import Case, OracleFault
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.method import Objective


class Watched:
    """An attack that also stores its result and what `once` made."""

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
    """An attack whose result is prescribed by the case, for cases that compare only the loss."""

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
        return torch.zeros(0)  # a target for a search that does not take place

    def once(self, craft: Callable[[], Any]) -> Any:
        return craft()


def linf_attack(case: Case, *, start: str, mode: str) -> ProjectedAscent:
    """Return the attack of training and evaluation, with the radius, steps and noise of the case."""
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
    """Return the attack's start, as named in the code, from the case's text."""
    start = str(case.hyper.get("start", "0"))
    if start == "0":
        return "none"
    if "unit_noise" not in start:
        raise OracleFault(f"hyper 'start' = {start!r} must be '0' or say what 'unit_noise' is multiplied with")
    return "uniform"
