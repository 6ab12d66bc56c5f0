"""pgd-N, cw-N, logit-scaling-A and logit-scaling-A-strict: gradient steps in the ball of a norm (Madry et al. 2018)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from trainers.attack import FORWARD, AttackSettings, EvaluationAttack, Verdicts
from trainers.values import Amount, Positive, as_float

if TYPE_CHECKING:
    from torch import Tensor, nn


class Pgd(EvaluationAttack):
    examples: ClassVar[tuple[str, ...]] = ("pgd-20", "pgd-100", "cw-100", "logit-scaling-10")

    kind: str = "pgd"
    loss: Literal["ce", "cw", "cw_clamped_above", "cw_until_wrong"] = "ce"
    start: Literal["uniform", "none"] = "uniform"
    steps: int = Field(ge=0)
    step_size: Amount
    alpha: Positive | None = Field(default=None, description="factor on the logits (logit scaling)")
    strict: bool | None = Field(default=None, description="robust only if correct after every step, not just the last")

    @classmethod
    def from_name(cls, name: str, settings: AttackSettings) -> Pgd | None:
        found = re.fullmatch(r"(pgd|cw)-(\d+)|logit-scaling-(\d+(?:\.\d+)?)(-strict)?", name)
        if found is None:
            return None
        return cls(
            name=name,
            norm=settings.norm,
            epsilon=settings.epsilon,
            seed=settings.seed,
            loss="cw" if found[1] == "cw" else "ce",
            steps=int(found[2] or 20),
            step_size=settings.step,
            alpha=float(found[3]) if found[3] else None,
            strict=bool(found[4]) or None,
            images=settings.images,
        )

    @property
    def cost(self) -> float:
        return self.steps + FORWARD

    @property
    def display(self) -> str:
        return super().display if self.alpha is not None else self.name.upper()

    def adversarial(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        indices: Tensor,
        observe: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """`observe` sees the logits of every iterate before its step."""
        from trainers.perturbation.projected_ascent import keyed_pgd

        return keyed_pgd(
            model,
            images,
            labels,
            indices,
            epsilon=as_float(self.epsilon),
            step_size=as_float(self.step_size),
            steps=self.steps,
            start=self.start,
            loss=self.loss,
            alpha=self.alpha,
            seed=self.seed,
            norm=self.norm,
            observe=observe,
        )

    def verdicts(
        self, model: nn.Module, images: Tensor, labels: Tensor, phase: str, *, indices: Tensor, checks: bool
    ) -> Verdicts:
        from trainers.perturbation.projected_ascent import correct_predictions

        seen: list[Tensor] = []
        observe = (lambda logits: seen.append(logits.argmax(dim=1) == labels)) if self.strict else None
        clean = correct_predictions(model, images, labels)
        correct = correct_predictions(model, self.adversarial(model, images, labels, indices, observe), labels)
        # The strict count is over the results of all steps; what was seen first is the start.
        for result in seen[1:]:
            correct &= result
        return Verdicts(correct, clean)
