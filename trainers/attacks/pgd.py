"""pgd-N, cw-N, logit-scaling-A and logit-scaling-A-strict: gradient steps in the ball of a norm (Madry et al. 2018)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from trainers.attack import FORWARD, AttackSettings, EvaluationAttack, Verdicts
from trainers.values import Amount, Positive, as_float

if TYPE_CHECKING:
    from torch import Tensor, nn


class Pgd(EvaluationAttack):
    """Projected gradient ascent from a random start."""

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
        match = re.fullmatch(r"(pgd|cw)-(\d+)|logit-scaling-(\d+(?:\.\d+)?)(-strict)?", name)
        if match is None:
            return None
        return cls(
            name=name,
            norm=settings.norm,
            epsilon=settings.epsilon,
            seed=settings.seed,
            loss="cw" if match[1] == "cw" else "ce",
            steps=int(match[2] or 20),
            step_size=settings.step,
            alpha=float(match[3]) if match[3] else None,
            strict=bool(match[4]) or None,
            images=settings.images,
        )

    @property
    def cost(self) -> float:
        return self.steps + FORWARD

    @property
    def display(self) -> str:
        return super().display if self.alpha is not None else self.name.upper()

    def adversarial(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        from trainers.attacks.perturbation.projected_ascent import keyed_pgd

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
        )

    def verdicts(
        self, model: nn.Module, images: Tensor, labels: Tensor, phase: str, *, indices: Tensor, checks: bool
    ) -> Verdicts:
        if not self.strict:
            return super().verdicts(model, images, labels, phase, indices=indices, checks=checks)
        from trainers.attacks.perturbation.projected_ascent import correct_predictions

        clean = correct_predictions(model, images, labels)
        way = _Way(labels)
        hook = model.register_forward_hook(way)
        try:
            last = self.adversarial(model, images, labels, indices)
        finally:
            hook.remove()
        correct = correct_predictions(model, last, labels)
        correct, fooling = way.judged(last, correct)
        return Verdicts(correct, clean, adversarial=fooling)


class _Way:
    """The model's predictions on the iterates of an attack, recorded by a forward hook.

    The strict count needs every step's result to be correct; the start does not count.
    """

    def __init__(self, labels: Tensor) -> None:
        self.labels = labels
        self.correct: Tensor | None = None
        self.fooling: Tensor | None = None  # the first iterate that fooled it

    def __call__(self, model: nn.Module, arguments: tuple[Tensor], logits: Tensor) -> None:
        points, right = arguments[0].detach(), logits.detach().argmax(dim=1) == self.labels
        if self.correct is None or self.fooling is None:
            self.correct, self.fooling = right.new_ones(right.shape), points
        else:
            self.fooling = points.where(_over(self.correct & ~right, points), self.fooling)
            self.correct = self.correct & right

    def judged(self, last: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
        """Return verdicts over all steps, the last one included, and the images to show.

        For each image this is an iterate that fooled the model, if any did.
        """
        if self.correct is None or self.fooling is None:
            return correct, last
        return correct & self.correct, last.where(_over(self.correct, last), self.fooling)


def _over(verdicts: Tensor, images: Tensor) -> Tensor:
    return verdicts.view(-1, *[1] * (images.dim() - 1))
