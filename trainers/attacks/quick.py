"""quick: margins against the nearest classes, about AutoAttack's verdicts for a small part of its passes.

For searches, `sweep.decide` and a first look. It is an attack of its own and never stands for AutoAttack in a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from trainers.attack import EvaluationAttack
from trainers.values import as_float

if TYPE_CHECKING:
    from torch import Tensor, nn


class Quick(EvaluationAttack):
    examples = ("quick",)

    kind: str = "quick"
    plan: int = Field(1, ge=1, description="raised when its steps change: verdicts of another plan are others")

    @property
    def cost(self) -> float:
        return 100.0  # half of the images survive the first rounds, and a tenth of these is tried again

    @property
    def display(self) -> str:
        return "quick"

    def adversarial(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        from trainers.perturbation.quick import ROUNDS, Search

        search = Search(model, images, labels, indices, epsilon=as_float(self.epsilon), norm=self.norm)
        return search.run(ROUNDS, self.seed)
