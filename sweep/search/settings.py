"""What is searched, and by which accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution

from sweep.trials.candidates import first_points

GENERATION = 4

METRICS = {
    "margin": "validation_margin_accuracy",
    "quick": "validation_quick_accuracy",
    "pgd": "validation_pgd_accuracy",
    "clean": "validation_clean_accuracy",
}


@dataclass(frozen=True)
class SearchSettings:
    """What is searched; `id` names it by all that can move its outcome, so equal searches are one."""

    id: str
    label: str
    method: str
    space: Mapping[str, BaseDistribution]
    paper_value: dict[str, Any]
    own_value: dict[str, Any] | None = None  # the study's, where it is not the paper's
    rungs: tuple[int, ...] = ()
    sampler: str = "gp"
    candidates: int = 8
    seeds: tuple[int, ...] = (1000,)
    pruner: str = "asha"
    objectives: tuple[str, ...] = ("margin",)

    @property
    def first(self) -> list[dict[str, Any]]:
        return first_points(self.own_value or self.paper_value, self.paper_value)

    @property
    def metric(self) -> str:
        """The accuracy that prunes and, alone or with others, chooses."""
        return METRICS[self.objectives[0]]
