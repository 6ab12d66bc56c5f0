"""Decisions: claims about two labels, tested seed by seed."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sweep.store import layout
from sweep.store.encoding import digest
from sweep.store.records.record import Provenance, Record, TrialName


class DecisionRecord(Provenance, Record):
    """A claim about two labels of a study. Seeds were added until it was decided or the budget was used up."""

    kind = "decision"
    study: Annotated[str, Field(pattern=r"^[\w-]+$")]
    first: str
    second: str
    direction: Literal[1, -1]  # 1: first above second; -1: first below second
    margin: float = 0.0
    measure: str
    epsilon: str | None = None  # None: that of the study
    checkpoint: str | None = None
    alpha: float = Field(gt=0, lt=1)
    scale: float  # scale of the effect sizes in the mixture
    resolution: float = Field(0.0, ge=0)
    seeds: tuple[int, ...] = Field(min_length=2)
    trials: tuple[tuple[TrialName, TrialName], ...]
    differences: tuple[float, ...]  # first minus second, seed by seed
    # By label, seeds added after seeing the results of earlier ones; None in records of earlier versions.
    added: dict[str, tuple[int, ...]] | None = None
    left_out: tuple[int, ...] = ()  # seeds with a collapsed or failed training
    verdict: Literal["holds", "does not hold", "undecided"]
    estimate: float
    low: float | None = None  # None: unbounded
    high: float | None = None
    e_value: float

    @property
    def path(self) -> str:
        """Return the path, which depends on the question and, through the first two trials, on the configurations."""
        asked = (
            "study",
            "first",
            "second",
            "direction",
            "margin",
            "measure",
            "epsilon",
            "checkpoint",
            "alpha",
            "scale",
        )
        content = [getattr(self, name) for name in asked]
        return layout.decision_record(self.study, digest([*content, self.trials[0]])[:16])

    @model_validator(mode="after")
    def _a_pair_of_trials_for_each_seed(self) -> Self:
        if not len(self.seeds) == len(self.trials) == len(self.differences):
            raise ValueError(f"{len(self.seeds)} seeds, {len(self.trials)} trials, {len(self.differences)} differences")
        if self.left_out and self.verdict != "undecided":
            raise ValueError("decided although a seed was left out")
        return self
