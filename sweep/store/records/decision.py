"""A claim about two labels, as far as seeds have decided it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sweep.store import layout
from sweep.store.encoding import digest
from sweep.store.records.record import Provenance, Record, TrialName


class DecisionRecord(Provenance, Record):
    """A claim about two labels of a study that seeds were added for until it was decided, or the budget ended."""

    kind = "decision"
    study: Annotated[str, Field(pattern=r"^[\w-]+$")]
    first: str
    second: str
    direction: Literal[1, -1]  # first above or below second
    margin: float = 0.0
    measure: str
    epsilon: str | None = None  # None: the study's own
    checkpoint: str | None = None
    alpha: float = Field(gt=0, lt=1)
    scale: float  # of the effect sizes in the mixture
    resolution: float = Field(0.0, ge=0)
    seeds: tuple[int, ...] = Field(min_length=2)
    trials: tuple[tuple[TrialName, TrialName], ...]
    differences: tuple[float, ...]  # first minus second, seed by seed
    # By label, what a look at earlier seeds led to, while it was trained too; None: written before this was said.
    added: dict[str, tuple[int, ...]] | None = None
    left_out: tuple[int, ...] = ()  # seeds of which a training collapsed or failed
    verdict: Literal["holds", "does not hold", "undecided"]
    estimate: float
    low: float | None = None  # None: unbounded
    high: float | None = None
    e_value: float

    @property
    def path(self) -> str:
        """By what is asked and, through the first two trials, of which configurations."""
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
