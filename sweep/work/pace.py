"""How long the rest of a sweep takes, judged by how long its pieces took so far."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from sweep.work.tasks import Job

# Trainings and attacks get a pace each: how they compare is only guessed until pieces of both are done.
STAGES = {"candidate": "train", "train": "train", "evaluate": "evaluate", "diagnose": "diagnose"}


class Pace:
    def __init__(self) -> None:
        self._cost: dict[str, float] = defaultdict(float)
        self._seconds: dict[str, float] = defaultdict(float)
        self._busy = 0.0  # with the starts of processes, which later pieces find running
        self._began: float | None = None

    def begin(self, job: Job) -> None:
        job.began, job.resumed_at = time.monotonic(), None
        self._began = self._began or job.began

    def end(self, job: Job) -> None:
        if job.began:  # what another driver did took no time here
            taken = time.monotonic() - job.began
            self._cost[STAGES[job.kind]] += job.cost * (1 - (job.resumed_at or 0.0))
            self._seconds[STAGES[job.kind]] += min(taken, job.seconds or taken)
            self._busy += taken

    def seconds_left(self, left: Mapping[str, float], running: Iterable[Job]) -> float | None:
        """Wall time for this much cost of each stage, as many pieces at once as so far; None before the first epoch."""
        now = time.monotonic()
        busy, costs, taken = self._busy, self._cost.copy(), self._seconds.copy()
        for job in running:
            if job.began:
                busy += now - job.began
            if job.began and job.resumed_at is not None:
                costs[STAGES[job.kind]] += job.done_here
                taken[STAGES[job.kind]] += now - job.began
        cost, seconds = sum(costs.values()), sum(taken.values())
        if not cost or self._began is None:
            return None
        at_once = max(1.0, busy / max(now - self._began, 1e-9))
        rates = {name: _rate(costs[name], taken[name], amount, seconds / cost) for name, amount in left.items()}
        return sum(amount * rates[name] for name, amount in left.items()) / at_once


def _rate(done: float, seconds: float, left: float, of_all: float) -> float:
    """Seconds for a unit of cost. First pieces are not typical: they count by the share that is done."""
    if not done:
        return of_all
    weight = done / (done + 0.2 * (done + left))
    return weight * seconds / done + (1 - weight) * of_all
