"""Tasks that wait for a device, the most urgent first, and how far those are that have one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.work.ordered import Ordered
from sweep.work.tasks import STAGES, Task, Training

SHARED = ("train", "diagnose")  # stages of which every driver knows all tasks


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
    rank: float = 0.0  # 0 in this driver's part of the work
    found: Sequence[Any] = ()  # records that its worker has stored
    stored: Sequence[Any] | None = None  # those of another driver's, as of when it was taken

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
    def order(self) -> tuple[int, bool, bool, float, float]:
        """By stage; then this driver's part of the work, then labels whose trainings have all ended, because their
        columns of the tables become whole; then the longest first."""
        stage = STAGES.index(self.task.stage)
        return stage, self.rank > 0, not self.fills_column, -self.task.cost, self.rank


class Ready:
    """Knows which labels are still being trained, because evaluations of whole columns go before others.

    Drivers that share a store begin at different places, so that they do not ask for the same tasks: `rank` is 0 for a
    trial of this driver's part, otherwise a number by which it goes through the others' parts in the end.
    """

    def __init__(self) -> None:
        self.rank: Callable[[str], float] = lambda trial: 0.0
        self._waiting = Ordered[Assigned](lambda one: one.order)
        self._known: set[str] = set()
        self._trainings: Counter[str] = Counter()  # of each label, those that have not ended
        self._changed: set[str] = set()  # labels that began or ended their trainings: sorted when somebody takes

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
                if self._trainings[task.label] == 1:
                    self._changed.add(task.label)
            self.put_back(Assigned(task))

    def put_back(self, assigned: Assigned) -> None:
        self._judge(assigned)
        self._waiting.add(assigned)

    def take(
        self, may_have: Callable[[Assigned], bool], trial: str = "", busy: Collection[str] = ()
    ) -> Assigned | None:
        """The most urgent one for which `may_have` holds.

        An evaluation of this trial, whose weights are loaded, goes before all others; of others that are as urgent one
        of a trial that nobody is busy with.
        """
        self._sort_changed()
        for place, assigned in enumerate(self._waiting):
            if may_have(assigned):
                if assigned.task.stage == "evaluate" and assigned.task.trial != trial:
                    place = self._best_trial(place, may_have, trial, busy)
                return self._waiting.pop(place)
        return None

    def remove(self, assigned: Assigned) -> None:
        self._waiting.remove(assigned)

    def drop(self, lease: str) -> None:
        """Whatever waits under a lease that is no longer ours; it may be added again."""
        for assigned in [one for one in self._waiting if one.task.lease == lease]:
            self.remove(assigned)
            self._known.discard(assigned.task.name)

    def forget(self, task: Task) -> None:
        """It may be added again."""
        self._known.discard(task.name)

    def share(self, rank: Callable[[str], float]) -> None:
        """Others have come or gone."""
        self.rank = rank
        for assigned in self._waiting:
            self._judge(assigned)
        self._waiting.replace_all()

    def startable(self, at_most: int, may_have: Callable[[Assigned], bool]) -> int:
        """How many could start now; counted no further than anybody wants to know."""
        found = 0
        for assigned in self._waiting:
            if found == at_most:
                break
            found += may_have(assigned)
        return found

    def count(self, stage: str) -> int:
        return self._waiting.count_between(*_stage(stage))

    def training_ended(self, label: str) -> None:
        self._trainings[label] -= 1
        if not self._trainings[label]:
            self._changed.add(label)

    def is_trained(self, label: str) -> bool:
        return not self._trainings[label]

    def _best_trial(self, first: int, may_have: Callable[[Assigned], bool], trial: str, busy: Collection[str]) -> int:
        """The place of the evaluation to take instead of the first one, or that one's."""
        best, urgent = first, self._waiting.key(first)
        for place in range(first, len(self._waiting)):
            order, found = self._waiting.key(place), self._waiting[place].task.trial
            if order[0] != urgent[0]:
                break
            if found == trial and may_have(self._waiting[place]):
                return place
            is_better = order[:3] == urgent[:3] and self._waiting[best].task.trial in busy and found not in busy
            if is_better and may_have(self._waiting[place]):
                best = place
        return best

    def _judge(self, assigned: Assigned) -> None:
        task = assigned.task
        assigned.fills_column = task.stage == "evaluate" and self.is_trained(task.label)
        assigned.rank = self.rank(task.trial) if task.stage in SHARED else 0.0

    def _sort_changed(self) -> None:
        """Only evaluations have a place that depends on their label."""
        if not self._changed:
            return
        for assigned in self._waiting.between(*_stage("evaluate")):
            if assigned.task.label in self._changed:
                self._judge(assigned)
                self._waiting.replace(assigned)
        self._changed.clear()


def _stage(name: str) -> tuple[tuple[int], tuple[int]]:
    """Between which keys its tasks are."""
    number = STAGES.index(name)
    return (number,), (number + 1,)
