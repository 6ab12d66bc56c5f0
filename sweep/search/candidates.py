"""Candidates of a search, with one training per seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.search.pruning import best_so_far
from sweep.store.records.search import CandidateEntry


@dataclass
class SeedRun:
    """One training of a candidate."""

    seed: int
    trial: str
    state: str = "open"  # then done, pruned, collapsed or failed
    values: list[float] | None = None  # one per objective
    epochs: int = 0


@dataclass
class Candidate:
    index: int
    generation: int
    hyperparameters: dict[str, Any]
    trial: str
    state: str = "open"  # then done, pruned, collapsed or failed
    value: float | None = None
    values: list[float] | None = None  # one per objective, averaged over the seeds
    epochs: int = 0
    robust: list[float | None] = field(default_factory=list)  # the first objective on the first seed, per epoch
    clean: list[float | None] = field(default_factory=list)
    runs: list[SeedRun] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        """Return whether the training on the first seed has not ended yet."""
        return self.state == "open" and self.runs[0].state == "open"


def dominates(one: Candidate, other: Candidate) -> bool:
    pairs = list(zip(one.values or (), other.values or (), strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def reached(goals: Sequence[Sequence[float | None]], state: str) -> list[float]:
    """Return the best value of the first objective and the others in that epoch; all 0 if the training collapsed."""
    best = best_so_far(goals[0])
    if best is None or state == "collapsed":
        return [0.0] * len(goals)
    epoch = list(goals[0]).index(best)
    return [goal[epoch] or 0.0 for goal in goals]


def from_record(entry: CandidateEntry, seed: int) -> Candidate:
    values = entry.model_dump(mode="python")
    for name in ("robust", "clean"):
        values[name] = list(values[name])
    values["values"] = None if entry.values is None else list(entry.values)
    values["runs"] = [
        SeedRun(**{**run.model_dump(), "values": None if run.values is None else list(run.values)})
        for run in entry.runs
    ] or [SeedRun(seed, entry.trial, entry.state, values["values"], entry.epochs)]
    return Candidate(**values)


def steps(candidate: Candidate) -> dict[int, float]:
    return {
        step + 1: value for step, value in enumerate(candidate.robust) if value is not None and math.isfinite(value)
    }
