"""Hyperparameter searches with their candidates, and pruned candidates."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from sweep.store import layout
from sweep.store.records.record import Curve, FileName, Part, Record, TrialName


class CandidateRecord(Record):
    """The curve of a candidate up to its pruning. Its weights are deleted."""

    kind = "candidate"
    search: FileName
    trial: TrialName
    status: Literal["pruned"] = "pruned"
    curve: Curve

    @property
    def path(self) -> str:
        return layout.candidate_record(self.search, self.trial)

    @classmethod
    def _located(cls, content: dict[str, Any], path: str) -> dict[str, Any]:
        return {"search": path.split("/")[1], **content}


class SeedEntry(Part):
    """One training of a candidate. `values` has one number per objective, and is None if the training failed."""

    seed: int
    trial: TrialName
    state: Literal["open", "done", "pruned", "collapsed", "failed"] = "open"
    values: tuple[float, ...] | None = None
    epochs: int = 0


class CandidateEntry(Part):
    """One candidate of a search. Trial and curves are those of its first seed."""

    index: int = Field(ge=0)
    generation: int = Field(ge=0)
    hyperparameters: dict[str, Any]
    trial: TrialName
    state: Literal["open", "done", "pruned", "collapsed", "failed"] = "open"
    value: float | None = None
    values: tuple[float, ...] | None = None  # one per objective
    epochs: int = 0  # total over all seeds
    robust: tuple[float | None, ...] = ()  # the first objective on validation images, per epoch
    clean: tuple[float | None, ...] = ()
    runs: tuple[SeedEntry, ...] = ()  # one per seed; empty in records from before several seeds were supported


class SearchRecord(Record):
    kind = "search"
    id: FileName
    label: str
    method: str
    space: dict[str, str]
    objective: str
    objectives: tuple[str, ...]
    sampler: str
    pruner: str
    seed: int  # the first one
    seeds: tuple[int, ...] = ()  # empty in records from before several seeds were supported
    rungs: tuple[int, ...] = ()
    generation: int
    wanted: int
    candidates: tuple[CandidateEntry, ...]
    front: tuple[int, ...] = ()
    chosen: dict[str, Any] | None = None
    reason: str = ""
    status: Literal["running", "done", "failed"]
    paper_value: dict[str, Any] = {}
    own_value: dict[str, Any] = {}  # the study's own values, always the first candidate
    versions: dict[str, str] = {}

    @property
    def all_seeds(self) -> tuple[int, ...]:
        return self.seeds or (self.seed,)

    @property
    def path(self) -> str:
        return layout.search_record(self.id)

    @model_validator(mode="after")
    def _a_finished_search_chose(self) -> Self:
        if self.status == "done" and self.chosen is None:
            raise ValueError("a search that is done has chosen something")
        return self
