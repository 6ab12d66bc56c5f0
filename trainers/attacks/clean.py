"""clean: the unmodified images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainers.attack import FORWARD, AttackSettings, EvaluationAttack
from trainers.values import Amount

if TYPE_CHECKING:
    from torch import Tensor, nn


class Clean(EvaluationAttack):
    """No attack: accuracy on the unmodified images."""

    examples = ("clean",)

    kind: str = "clean"
    epsilon: Amount = "0"

    @classmethod
    def from_name(cls, name: str, settings: AttackSettings) -> Clean | None:
        return cls(name=name, images=settings.images) if name == "clean" else None

    @property
    def _radius(self) -> str:
        return ""

    @property
    def cost(self) -> float:
        return FORWARD

    def adversarial(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        return images
