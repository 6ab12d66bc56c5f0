"""Tasks that wait for a device, the most urgent first, and how far those are that have one."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sweep.work.tasks import STAGES, Task, Training


@dataclass(eq=False)
class Assigned:
    """A task on its way through a sweep."""

    task: Task
    not_before: float = 0.0  # another driver has it: asked again then
    fills_column: bool = False  # all trainings of its label have ended
    started: bool = False
    began: float = 0.0  # by the monotonic clock
    seconds: float = 0.0  # that its worker says it took
    resumed_at: float | None = None  # the share of its training that was done before it began, known at its first epoch
    share: float = 0.0  # of its training that is done
    failures: int = 0  # since it last got any further
    deaths: int = 0  # of its processes, since it last got any further
    avoided: set[str] = field(default_factory=set)  # nodes that failed it
    gpu_bytes: int = 0  # the memory of a GPU that was too small for it
    timed_from: tuple[float, float] = (0.0, 0.0)  # when its first epoch here ended, and its share then
    timed_to: float = 0.0  # when its latest one did
    trouble: str = ""  # what ended its latest attempt

    @property
    def attempt(self) -> int:
        """Counted from 1, since it last got any further."""
        return self.failures + 1

    @property
    def timed_cost(self) -> float:
        """Of what was trained since the end of its first epoch here: that one waits for imports and data."""
        return self.task.cost * (self.share - self.timed_from[1])

    @property
    def timed_seconds(self) -> float:
        return self.timed_to - self.timed_from[0]

    def reached(self, epoch: int) -> None:
        """An epoch, counted from 0, has ended."""
        self.got_further()
        if self.resumed_at is None:
            self.resumed_at = min(1.0, epoch / self.task.epochs)
            self.timed_from = time.monotonic(), min(1.0, (epoch + 1) / self.task.epochs)
        self.timed_to = time.monotonic()
        self.share = min(1.0, (epoch + 1) / self.task.epochs)

    def got_further(self) -> None:
        """What went wrong before does not count any more."""
        self.failures = self.deaths = 0

    @property
    def order(self) -> tuple[int, bool, float]:
        """By stage; then labels whose trainings have all ended, because their columns of the tables become whole; then
        the longest first."""
        return STAGES.index(self.task.stage), not self.fills_column, -self.task.cost


class Ready:
    """Knows which labels are still being trained, because evaluations of whole columns go before others."""

    def __init__(self) -> None:
        self._waiting: list[Assigned] = []
        self._known: set[str] = set()
        self._trainings: Counter[str] = Counter()  # of each label, those that have not ended
        self._stale = False  # a label began or ended its trainings: sorted when somebody takes, not ten thousand times

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Assigned]:
        return iter(self._waiting)

    def add(self, task: Task) -> None:
        """Nothing is added twice."""
        if task.name not in self._known:
            self._known.add(task.name)
            if type(task) is Training:
                self._trainings[task.label] += 1
                self._stale = True
            self.put_back(Assigned(task))

    def put_back(self, assigned: Assigned) -> None:
        assigned.fills_column = self._fills_column(assigned)
        bisect.insort(self._waiting, assigned, key=lambda one: one.order)

    def take(self, may_have: Callable[[Assigned], bool]) -> Assigned | None:
        """The most urgent one for which `may_have` holds."""
        if self._stale:
            self._sort()
        for place, assigned in enumerate(self._waiting):
            if may_have(assigned):
                return self._waiting.pop(place)
        return None

    def drop(self, lease: str) -> None:
        """Whatever waits under a lease that is no longer ours; it may be added again."""
        for assigned in [one for one in self._waiting if one.task.lease == lease]:
            self._waiting.remove(assigned)
            self._known.discard(assigned.task.name)

    def forget(self, task: Task) -> None:
        """It may be added again."""
        self._known.discard(task.name)

    def startable(self, at_most: int, may_have: Callable[[Assigned], bool]) -> int:
        """How many could start now; counted no further than anybody wants to know."""
        found = 0
        for assigned in self._waiting:
            if found == at_most:
                break
            found += may_have(assigned)
        return found

    def training_ended(self, label: str) -> None:
        self._trainings[label] -= 1
        self._stale = self._stale or not self._trainings[label]

    def is_trained(self, label: str) -> bool:
        return not self._trainings[label]

    def _fills_column(self, assigned: Assigned) -> bool:
        return assigned.task.stage == "evaluate" and self.is_trained(assigned.task.label)

    def _sort(self) -> None:
        for assigned in self._waiting:
            assigned.fills_column = self._fills_column(assigned)
        self._waiting.sort(key=lambda one: one.order)
        self._stale = False
