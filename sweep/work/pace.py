"""How long the rest of a sweep takes, judged by how long its tasks took so far."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping

from sweep.work.ready import Assigned


class Pace:
    """Trainings and attacks get a pace each: how they compare is only guessed until tasks of both are done."""

    def __init__(self) -> None:
        self._cost: dict[str, float] = defaultdict(float)
        self._seconds: dict[str, float] = defaultdict(float)
        self._busy = 0.0  # with the starts of processes, which later tasks find running
        self._began: float | None = None

    def begin(self, assigned: Assigned) -> None:
        assigned.began, assigned.resumed_at = time.monotonic(), None
        self._began = self._began or assigned.began

    def end(self, assigned: Assigned) -> None:
        if assigned.began:  # what another driver did took no time here
            taken = time.monotonic() - assigned.began
            self._cost[kind(assigned)] += assigned.task.cost * (1 - (assigned.resumed_at or 0.0))
            self._seconds[kind(assigned)] += min(taken, assigned.seconds or taken)
            self._busy += taken

    def seconds_left(self, left: Mapping[str, float], running: Collection[Assigned]) -> float | None:
        """Wall time for this much cost of each kind, as many tasks at once as so far; None before the second epoch."""
        now = time.monotonic()
        busy, costs, taken = self._busy, self._cost.copy(), self._seconds.copy()
        begun = [assigned for assigned in running if assigned.began]
        for assigned in begun:
            busy += now - assigned.began
            if assigned.resumed_at is not None:
                costs[kind(assigned)] += assigned.timed_cost
                taken[kind(assigned)] += assigned.timed_seconds
        cost, seconds = sum(costs.values()), sum(taken.values())
        if not cost or self._began is None:
            return None
        rates = {name: _rate(costs[name], taken[name], amount, seconds / cost) for name, amount in left.items()}
        rests = [_rest(assigned, rates.get(kind(assigned), 0.0), now) for assigned in begun]
        whole = sum(amount * rates[name] for name, amount in left.items()) - sum(spent for _, spent in rests)
        # The first process works alone until the others have started, the last one in the end.
        at_once = max(1.0, busy / max(now - self._began, 1e-9), len(begun))
        return max(0.0, whole / at_once, *(rest for rest, _ in rests))


def kind(assigned: Assigned) -> str:
    """Candidates of a search are trainings too."""
    return "train" if assigned.task.stage == "search" else assigned.task.stage


def _rest(assigned: Assigned, rate: float, now: float) -> tuple[float, float]:
    """Seconds that a running task still takes, and those since it was last heard of."""
    expected = assigned.task.cost * (1 - assigned.share) * rate
    spent = min(expected, now - (assigned.timed_to if assigned.resumed_at is not None else assigned.began))
    return expected - spent, spent


def _rate(done: float, seconds: float, left: float, of_all: float) -> float:
    """Seconds for a unit of cost. First tasks are not typical: they count by the share that is done."""
    if not done:
        return of_all
    weight = done / (done + 0.2 * (done + left))
    return weight * seconds / done + (1 - weight) * of_all
