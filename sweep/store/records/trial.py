"""Trials: the outcome of a training, and the progress of a running one."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweep.store import layout
from sweep.store.records.record import Curve, Part, Provenance, Record, TrialName
from trainers.config import TrialConfig


class Checkpoint(Part):
    epoch: int = Field(ge=0)
    sha256: str
    bytes: int = 0


class TrialRecord(Provenance, Record):
    """The outcome of one training. It is written after all files that belong to it."""

    kind = "trial"
    trial: TrialName
    config: TrialConfig
    numerics: int = 1
    status: Literal["done", "collapsed", "failed"]
    reason: str | None = None
    curve: Curve = ()
    checkpoints: dict[str, Checkpoint] = {}
    metrics: dict[str, float] = {}
    steps: int = 0
    wall_seconds: float = 0.0
    log: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return layout.trial_record(self.trial)

    @property
    def made_with(self) -> dict[str, str]:
        """Return the recorded facts that influence the last digits of a training."""
        facts = {"kinds of device": self.device_kind, "builds of torch": self.versions.get("torch", "")}
        if self.device_kind == "cpu":
            facts["numbers of threads"] = str(self.threads or "")
        return {what: value for what, value in facts.items() if value}


class Progress(Part):
    """The progress of a running training: a note for users, without a checksum."""

    trial: str
    label: str
    seed: int
    epoch: int
    epochs: int
    started: float
    updated: float
    host: str
    pid: int
    data: dict[str, str] = {}  # SHA-256 by name, as in `Provenance`
