"""The settings of a search, and the accuracies it can maximize."""

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
    """The settings of one search. `id` depends on all that can change the outcome, so equal searches share it."""

    id: str
    label: str
    method: str
    space: Mapping[str, BaseDistribution]
    paper_value: dict[str, Any]
    own_value: dict[str, Any] | None = None  # the study's value, if it differs from the paper's
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
        """Return the accuracy used for pruning and, alone or with others, for the choice."""
        return METRICS[self.objectives[0]]
