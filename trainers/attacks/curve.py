"""curve: the distance at which each image is fooled, and with it the accuracy at all radii at once.

The distances are upper bounds, so the curve bounds the robust accuracy from above, as every attack does. The verdict at
the study's radius is whether an image is fooled within it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from trainers.attack import EvaluationAttack, Verdicts
from trainers.values import as_float

if TYPE_CHECKING:
    from torch import Tensor, nn


class Curve(EvaluationAttack):
    """A search for the smallest perturbation of each image that fools the model."""

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
        """Return the nearest adversarial point if it lies within the radius, otherwise the image itself."""
        return self._searched(model, images, labels, indices)[0]

    def verdicts(
        self, model: nn.Module, images: Tensor, labels: Tensor, phase: str, *, indices: Tensor, checks: bool
    ) -> Verdicts:
        from trainers.attacks.perturbation.projected_ascent import correct_predictions

        adversarial, distances = self._searched(model, images, labels, indices)
        clean, correct = (correct_predictions(model, points, labels) for points in (images, adversarial))
        return Verdicts(correct, clean, adversarial=adversarial, distances=distances)

    def _searched(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        import torch

        from trainers.attacks.perturbation.minimal import nearest_fooling

        radius = as_float(self.epsilon)
        points, distances = nearest_fooling(
            model, images, labels, indices, epsilon=radius, norm=self.norm, seed=self.seed
        )
        within = (distances <= radius).view(-1, *[1] * (images.dim() - 1))
        return torch.where(within, points, images), distances
