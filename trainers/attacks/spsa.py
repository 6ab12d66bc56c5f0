"""spsa and spsa-N: gradients estimated from queries (Uesato et al. 2018)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import Field

from trainers.attack import AttackSettings, EvaluationAttack
from trainers.values import NonNegative, Positive, as_float

if TYPE_CHECKING:
    from torch import Tensor, nn


class Spsa(EvaluationAttack):
    """A gradient-free attack in L∞."""

    examples = ("spsa",)

    kind: str = "spsa"
    steps: int = Field(100, ge=0)
    samples: int = Field(256, ge=1, description="directions per step")
    delta: Positive = Field(0.001, description="finite difference")
    learning_rate: NonNegative = 0.01

    @classmethod
    def from_name(cls, name: str, settings: AttackSettings) -> Spsa | None:
        match = re.fullmatch(r"spsa(?:-(\d+))?", name)
        if match is None:
            return None
        if settings.norm != "linf":
            raise ValueError(
                f"{name} is defined for linf alone, not for {settings.norm}; use pgd-20, square or autoattack"
            )
        steps = int(match[1] or 100)
        return cls(name=name, epsilon=settings.epsilon, seed=settings.seed, steps=steps, images=settings.images)

    @property
    def cost(self) -> float:
        return 2 * self.steps * self.samples / 3  # forwards of many images at once

    @property
    def display(self) -> str:
        return self.name.upper()

    def adversarial(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        from trainers.attacks.perturbation import spsa

        return spsa.perturb(
            model,
            images,
            labels,
            epsilon=as_float(self.epsilon),
            steps=self.steps,
            samples=self.samples,
            delta=self.delta,
            learning_rate=self.learning_rate,
            directions=spsa.shared_directions(self.seed, self.samples),
        )
