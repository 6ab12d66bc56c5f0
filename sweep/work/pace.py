"""An estimate of a sweep's remaining time, from the durations of its pieces so far."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping

from sweep.work.item import Item

FIRST_GUESS = 1e-5  # seconds per pass of an image through a network, before any measurement


class Pace:
    """Seconds per unit of cost, separately for trainings and attacks: their ratio is unknown until both have run."""

    def __init__(self) -> None:
        self._cost: dict[str, float] = defaultdict(float)
        self._seconds: dict[str, float] = defaultdict(float)
        self._busy = 0.0  # with the starts of processes, which later pieces do not pay for
        self._began: float | None = None

    @staticmethod
    def kind(item: Item) -> str:
        """Return the kind of work that a piece is timed as. Candidates of a search are trainings too."""
        return "train" if item.piece.stage == "search" else item.piece.stage

    def begin(self) -> None:
        self._began = self._began or time.monotonic()

    def end(self, item: Item) -> None:
        """Record a piece that has ended. `began` is 0 if another driver did it."""
        if item.began:
            taken = time.monotonic() - item.began
            self._cost[self.kind(item)] += item.piece.cost * (1 - (item.resumed_at or 0.0))
            self._seconds[self.kind(item)] += taken
            self._busy += taken

    def expected_seconds(self, item: Item) -> float:
        """Return the estimated seconds of a piece on one device."""
        cost, seconds = self._cost[self.kind(item)], self._seconds[self.kind(item)]
        return item.piece.cost * (seconds / cost if cost else FIRST_GUESS)

    def seconds_left(self, left: Mapping[str, float], running: Collection[Item]) -> float | None:
        """Return the wall seconds for these remaining costs by kind, at the parallelism observed so far.

        Return None before the second epoch of the first training.
        """
        now = time.monotonic()
        busy, costs, taken = self._busy, self._cost.copy(), self._seconds.copy()
        for item in running:
            busy += now - item.began
            if item.resumed_at is not None:
                costs[self.kind(item)] += item.timed_cost
                taken[self.kind(item)] += item.timed_seconds
        cost, seconds = sum(costs.values()), sum(taken.values())
        if not cost or self._began is None:
            return None
        rates = {name: _rate(costs[name], taken[name], amount, seconds / cost) for name, amount in left.items()}
        rests = [_rest(item, rates.get(self.kind(item), 0.0), now) for item in running]
        whole = sum(amount * rates[name] for name, amount in left.items()) - sum(spent for _, spent in rests)
        # The first process works alone until the others have started, and the last one works alone at the end.
        at_once = max(1.0, busy / max(now - self._began, 1e-9), len(running))
        return max(0.0, whole / at_once, *(rest for rest, _ in rests))


def _rest(item: Item, rate: float, now: float) -> tuple[float, float]:
    """Return the estimated remaining seconds of a running piece, and the seconds since its last report."""
    expected = item.piece.cost * (1 - item.share) * rate
    spent = min(expected, now - (item.timed_to if item.resumed_at is not None else item.began))
    return expected - spent, spent


def _rate(done: float, seconds: float, left: float, of_all: float) -> float:
    """Return the seconds per unit of cost. The first pieces are not typical, so they are weighted by the share done."""
    if not done:
        return of_all
    weight = done / (done + 0.2 * (done + left))
    return weight * seconds / done + (1 - weight) * of_all
