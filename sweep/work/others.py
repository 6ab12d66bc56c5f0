"""The drivers beside this one: who begins with which trials, and what they have finished when one is done oneself."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from sweep.evaluation.asked import diagnoses_of, stored_results
from sweep.store import layout
from sweep.store.records.trial import TrialRecord
from sweep.work.ready import Assigned
from sweep.work.shares import rank_among
from sweep.work.tasks import DiagnosisTask, Training

if TYPE_CHECKING:
    from sweep.work.work import Work

TITLE_SECONDS = 5.0
SURVEY_SECONDS, EXPECT_SECONDS = 600.0, 300.0


class Others:
    def __init__(self, work: Work) -> None:
        self.work = work
        self._drivers: list[str] = []
        self._surveyed = self._expected = -math.inf
        self._titles: list[str] = []
        self._next_titles = 0.0

    def titles(self) -> list[str]:
        """Of those that have what was refused here; asked now and then."""
        if time.monotonic() > self._next_titles:
            self._next_titles = time.monotonic() + TITLE_SECONDS
            self._titles = [holder.title for holder in self.work.leases.others()]
        return self._titles

    def share(self) -> None:
        """Begin with other trials than they do."""
        drivers = self.work.leases.drivers()
        if drivers != self._drivers:
            self._drivers = drivers
            self.work.ready.share(rank_among(drivers, self.work.leases.sign.name))
            self.work.evaluations.shares_changed()

    @property
    def is_surveyed(self) -> bool:
        return time.monotonic() - self._surveyed < SURVEY_SECONDS

    def are_known(self) -> bool:
        """Whether it is known what they have finished; then also what they have begun, by one listing now and then."""
        if self.is_surveyed and time.monotonic() - self._expected > EXPECT_SECONDS:
            self._expected = time.monotonic()
            work = self.work
            tasks = {one.task.lease for one in work.ready if one.rank}
            trials = {one.lease for one in work.evaluations.waiting if work.ready.rank(one.trial)}
            work.leases.expect(tasks, less_urgent=trials)
        return self.is_surveyed

    def survey(self) -> bool:
        """What they have finished of their parts, by a few listings; whether it was time to look.

        What is left of their parts is then free for this driver.
        """
        if self.is_surveyed:
            return False
        self._surveyed = time.monotonic()
        work = self.work
        stored, trained = stored_results(work.store), set(work.store.record_paths(TrialRecord))
        for assigned in [one for one in work.ready if one.rank]:
            task = assigned.task
            if isinstance(task, DiagnosisTask) and task.diagnosis.record in stored:
                work.ready.remove(assigned)
                work.done[task.stage] += 1
            elif isinstance(task, Training) and layout.trial_record(task.trial) in trained:
                self._trained(assigned, task, stored)
        work.evaluations.stored_by_others(stored)
        self._expected = -math.inf
        return True

    def _trained(self, assigned: Assigned, task: Training, stored: Collection[str]) -> None:
        """It has a record, which is read when somebody here is to evaluate it: of most trials nobody is."""
        work, cell = self.work, self.work.cells[task.trial]
        lacks_diagnosis = any(one.record not in stored for one in diagnoses_of(work.study, cell))
        if (work.retry_failed or lacks_diagnosis) and task.stored(work) is None:
            return
        work.ready.remove(assigned)
        work.done[task.stage] += 1
        if lacks_diagnosis:
            work.training_ended(task, (), stored)
        else:
            work.training_failed(task)
            work.evaluations.add(cell, stored, is_trained=False)
