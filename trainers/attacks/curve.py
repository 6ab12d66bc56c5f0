"""curve: the distance at which each image falls, and with it the accuracy at all radii at once.

What it finds bounds the distances from above, so the curve bounds the robust accuracy from above, as every attack does.
Its verdict at the radius of the study is whether an image falls within it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from trainers.attack import EvaluationAttack, Verdicts
from trainers.values import as_float

if TYPE_CHECKING:
    from torch import Tensor, nn


class Curve(EvaluationAttack):
    examples = ("curve",)

    kind: str = "curve"
    plan: int = Field(3, ge=1, description="raised when its steps change: verdicts of another plan are others")

    @property
    def cost(self) -> float:
        return 350.0

    @property
    def display(self) -> str:
        return "minimal distances"

    def adversarial(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        """The nearest point that fools, where it lies within the radius; the image itself elsewhere."""
        return self._searched(model, images, labels, indices)[0]

    def verdicts(
        self, model: nn.Module, images: Tensor, labels: Tensor, phase: str, *, indices: Tensor, checks: bool
    ) -> Verdicts:
        from trainers.perturbation.projected_ascent import correct_predictions

        found, distances = self._searched(model, images, labels, indices)
        clean, correct = (correct_predictions(model, one, labels) for one in (images, found))
        return Verdicts(correct, clean, adversarial=found, distances=distances)

    def _searched(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        import torch

        from trainers.perturbation.minimal import nearest_fooling

        radius = as_float(self.epsilon)
        points, distances = nearest_fooling(
            model, images, labels, indices, epsilon=radius, norm=self.norm, seed=self.seed
        )
        within = (distances <= radius).view(-1, *[1] * (images.dim() - 1))
        return torch.where(within, points, images), distances
