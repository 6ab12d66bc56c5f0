"""quick: margins to the nearest classes, then random squares; AutoAttack's verdicts for at most a fifth of its passes.

It is meant for searches, `sweep.decide` and a first look. It is an attack of its own and never replaces AutoAttack in a
table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from trainers.attack import EvaluationAttack
from trainers.values import as_float

if TYPE_CHECKING:
    from torch import Tensor, nn

PLAN = 3  # increased when its steps change, so that their results get another name


class Quick(EvaluationAttack):
    """A cheap attack on margins; see `trainers.attacks.perturbation.quick`."""

    examples = ("quick",)

    kind: str = "quick"
    plan: int = Field(PLAN, ge=1, description="of its steps: verdicts of another plan are others")

    @property
    def cost(self) -> float:
        return 200.0  # half of the images survive the first rounds; half of these take 1,610 queries

    @property
    def display(self) -> str:
        return "quick"

    def adversarial(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        from trainers.attacks.perturbation.quick import Search, rounds

        search = Search(model, images, labels, indices, epsilon=as_float(self.epsilon), norm=self.norm)
        return search.run(rounds(self.norm), self.seed)
