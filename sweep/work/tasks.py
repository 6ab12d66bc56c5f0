"""Pieces of work of a sweep, and the leases on them that keep two drivers from doing the same piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.evaluation.items import Evaluation
from sweep.search.search import Candidate, Search
from sweep.store.base import Store
from sweep.store.leases import Claim
from sweep.trials.cost import epochs
from sweep.trials.identity import folder
from trainers.config import TrialConfig

LEASE_SECONDS = 60.0
PRIORITY = {"candidate": 0, "train": 1, "evaluate": 2, "diagnose": 3}


@dataclass(eq=False)
class Job:
    """One piece of work. `payload` is all that its worker gets to know, as plain values."""

    kind: str
    name: str
    claim: str
    label: str
    seed: int
    cost: float  # relative, for the order and the time left
    payload: dict[str, Any]
    search: Search | None = None
    candidate: Candidate | None = None
    evaluation: Evaluation | None = None
    not_before: float = 0.0
    started: bool = False
    began: float = 0.0  # by the monotonic clock
    seconds: float = 0.0  # that its worker says it took
    resumed_at: float | None = None  # the share of its training that was done before it began, known at its first epoch
    share: float = 0.0  # of its training that is done
    fills_column: bool = False  # all trainings of its label have ended

    @property
    def done_here(self) -> float:
        """The cost of what was trained since it began."""
        return self.cost * (self.share - (self.resumed_at or 0.0))

    def reached(self, epoch: int) -> None:
        """An epoch, counted from 0, has ended."""
        if self.resumed_at is None:
            self.resumed_at = min(1.0, epoch / self.payload["epochs"])
        self.share = min(1.0, (epoch + 1) / self.payload["epochs"])

    @property
    def title(self) -> str:
        if self.candidate is not None:
            return f"{self.label} candidate {self.candidate.index}"
        attack = f" {self.evaluation.attack.name}" if self.evaluation else ""
        return f"{self.label} seed {self.seed}{attack}"

    @property
    def order(self) -> tuple[int, bool, bool, float]:
        """Candidates first, since other work waits for a search; then the longest trainings; evaluations fill up.

        Among these, what is begun is finished: an evaluation that waits in pieces keeps other drivers from it.
        Then labels whose trainings have all ended, because their columns of the tables become whole.
        """
        return PRIORITY[self.kind], "phase" not in self.payload, not self.fills_column, -self.cost


class Claims:
    """The leases that this driver holds."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._held: dict[str, Claim] = {}

    def take(self, name: str) -> bool:
        """Whether it is ours, now or already."""
        if name not in self._held:
            claim = self.store.claim(name, LEASE_SECONDS)
            if claim is None:
                return False
            self._held[name] = claim
        return True

    def release(self, name: str) -> None:
        claim = self._held.pop(name, None)
        if claim is not None:
            claim.release()

    def release_all(self) -> None:
        for name in list(self._held):
            self.release(name)


def payload(
    common: Mapping[str, Any], kind: str, label: str, trial: str, config: TrialConfig, **more: Any
) -> dict[str, Any]:
    return {
        **common,
        "kind": kind,
        "label": label,
        "seed": config.seed,
        "trial": trial,
        "folder": f"trials/{folder(trial)}",
        "config": config.model_dump(mode="json"),
        "epochs": epochs(config),
        **more,
    }


def failed_record(job: Job, reason: str, log: list[str]) -> dict[str, Any]:
    known = {key: job.payload[key] for key in ("trial", "config", "numerics", "commit", "command")}
    return {
        "kind": "trial",
        "format": 1,
        **known,
        "status": "failed",
        "reason": reason,
        "curve": [],
        "checkpoints": {},
        "metrics": {},
        "versions": {},
        "device": "",
        "wall_seconds": 0.0,
        "steps": 0,
        "log": log,
    }
