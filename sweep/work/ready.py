"""Pieces of work that wait for a device, the most urgent first."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterator

from sweep.work.tasks import Job


class Ready:
    """Knows which labels are still being trained, because evaluations of whole columns go before others."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._known: set[tuple[str, str]] = set()
        self._trainings: Counter[str] = Counter()  # of each label, those that have not ended
        self._stale = False  # a label began or ended its trainings: sorted when somebody takes, not ten thousand times

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)

    def add(self, job: Job) -> None:
        """Nothing is added twice."""
        if (job.kind, job.name) not in self._known:
            self._known.add((job.kind, job.name))
            if job.kind == "train":
                self._trainings[job.label] += 1
                self._stale = True
            self.put_back(job)

    def put_back(self, job: Job) -> None:
        job.fills_column = self._fills_column(job)
        bisect.insort(self._jobs, job, key=lambda one: one.order)

    def take(self, may_have: Callable[[Job], bool]) -> Job | None:
        """The most urgent one for which `may_have` holds."""
        if self._stale:
            self._sort()
        for place, job in enumerate(self._jobs):
            if may_have(job):
                return self._jobs.pop(place)
        return None

    def training_ended(self, label: str) -> None:
        self._trainings[label] -= 1
        self._stale = self._stale or not self._trainings[label]

    def _fills_column(self, job: Job) -> bool:
        return job.kind == "evaluate" and not self._trainings[job.label]

    def _sort(self) -> None:
        for job in self._jobs:
            job.fills_column = self._fills_column(job)
        self._jobs.sort(key=lambda one: one.order)
        self._stale = False
