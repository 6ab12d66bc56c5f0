"""What a sweep still has to do, and in which order: candidates of searches, then trainings, then evaluations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sweep.evaluation.asked import Evaluation, diagnoses_of, evaluations_of, stored_results
from sweep.search.stored import POLL_SECONDS
from sweep.store.base import Store
from sweep.store.drivers import HeldLeases
from sweep.store.manifests import write_manifest
from sweep.store.records.trial import TrialRecord
from sweep.studies.model import Study, searched
from sweep.trials import cells as planned
from sweep.trials.cost import diagnosis_passes, training_cost
from sweep.work.candidates import Candidates
from sweep.work.damage import set_damaged_weights_aside
from sweep.work.evaluations import OpenEvaluations, OpenTrial
from sweep.work.others import Others
from sweep.work.pace import Pace, kind
from sweep.work.ready import Assigned, Ready
from sweep.work.summary import Failure
from sweep.work.tasks import DiagnosisTask, Training
from trainers.chance import near_chance
from trainers.data import dataset_facts

BUSY_LOOK_SECONDS = 300.0  # how old the knowledge of others' leases may be while there is work of one's own


def learned_nothing(record: TrialRecord) -> bool:
    headline = record.config.selection.headline
    known = [record.metrics.get(f"{headline}_{split}_clean_accuracy") for split in ("validation", "test")]
    clean = next((value for value in known if value is not None), None)
    return clean is not None and near_chance(clean, dataset_facts(record.config.dataset).classes)


class Work:
    """Everything that is left of a study. Another driver may be doing parts of it: those are waited for."""

    def __init__(
        self,
        study: Study,
        store: Store,
        *,
        retry_failed: bool = False,
        command: str = "",
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        self.study, self.store, self.command = study, store, command
        self.retry_failed, self.may_start = retry_failed, may_start
        self.ready = Ready()
        self.running: list[Assigned] = []
        self.failed: list[Failure] = []
        self.done: Counter[str] = Counter()
        self.best: dict[str, float] = {}
        self.near_chance: list[str] = []  # titles of trainings that learned next to nothing
        self.pace = Pace()
        self.leases = HeldLeases(store)
        self.chosen = planned.chosen_values(study, store)
        self.candidates = Candidates(study, store, self.leases, self.ready, self.chosen, retry_failed)
        self.evaluations = OpenEvaluations(study, store, self.leases, self.ready)
        self.cells: dict[str, planned.Cell] = {}  # by trial
        self._waiting: list[planned.Cell] = []  # for their searches
        self._after_training: tuple[list[Evaluation], float] = [], 0.0  # of each trial, and what its diagnoses cost
        self.others = Others(self)
        self._look_at(list(study.columns()))

    @property
    def complete(self) -> bool:
        return not self.left

    @property
    def left(self) -> int:
        return len(self.ready) + len(self.running) + len(self.candidates.searches.open) + self.evaluations.count

    def seconds_left(self) -> float | None:
        """A guess at the wall time of all that is left, queued or not; None before anything is done."""
        left = {"train": self._expected_trainings(), "evaluate": self.evaluations.expected_cost(), "diagnose": 0.0}
        untrained = Counter(cell.label for cell in self._waiting)
        for assigned in [*self.ready, *self.running]:
            left[kind(assigned)] += assigned.task.cost * (1 - assigned.share)
            untrained[assigned.task.label] += assigned.task.stage == "train"
        evaluations, diagnoses = self._after_training
        for label, trials in untrained.items():
            left["evaluate"] += trials * self.evaluations.survival.cost(label, evaluations)
            left["diagnose"] += trials * diagnoses
        return self.pace.seconds_left(left, self.running)

    def waits_for(self) -> list[str]:
        """The other drivers that have all that is left, as long as nothing of it runs here; asked now and then."""
        return [] if self.running or not self.left else self.others.titles()

    def waiting(self, stage: str) -> int:
        """How many of a stage wait, for a device or to be opened."""
        queued = sum(one.task.stage == stage and not one.started for one in (*self.ready, *self.running))
        return queued + (self.evaluations.count if stage == "evaluate" else 0)

    def startable(self, at_most: int) -> int:
        """How many tasks could start now, as far as is known without taking them; never more than asked about."""
        self._advance_searches()
        if not at_most or not self.may_start():
            return 0
        found = self._free(at_most)
        if found < at_most and self.leases.look(POLL_SECONDS, at_all=True):
            found = self._free(at_most)
        return found

    def _free(self, at_most: int) -> int:
        now = time.monotonic()

        def is_free(waiting: Assigned | OpenTrial, lease: str) -> bool:
            return waiting.not_before <= now and not self.leases.is_refused(lease)

        found = self.ready.startable(at_most, lambda one: is_free(one, one.task.lease))
        for opened in self.evaluations.waiting:
            if found >= at_most:
                break
            found += len(opened.missing) * is_free(opened, opened.lease)
        return min(found, at_most)

    def next_task(self, accepts: Callable[[Assigned], bool] = lambda _: True, *, trial: str = "") -> Assigned | None:
        """The most urgent one that nobody else has; None if there is nothing to start at the moment.

        `accepts` says whether whoever asks can do a task; `trial` is the one whose weights it has loaded.
        """
        assigned_stage = ""
        foreign = False  # something of another driver's part was met: what became of it is to be found out first

        def is_known(rank: float) -> bool:
            nonlocal foreign
            foreign = foreign or rank > 0
            return not rank or self.others.are_known()

        def may_have(assigned: Assigned) -> bool:
            return accepts(assigned) and is_known(assigned.rank) and self._is_free(assigned) and self._take(assigned)

        def may_begin(one: OpenTrial) -> bool:
            rank = self.ready.rank(one.trial)
            return not rank or (assigned_stage != "evaluate" and is_known(rank))

        self.others.share()
        self.leases.look(BUSY_LOOK_SECONDS)
        while True:
            self._advance_searches()
            if not self.may_start():
                return None
            foreign = False
            busy = {one.task.trial for one in self.running if one.task.stage == "evaluate"} - {trial}
            assigned = self.ready.take(may_have, trial, busy)
            # Begun evaluations come first: their pieces keep other drivers from them. But whoever has a trial's weights
            # is to do all of it, as long as there are others.
            assigned_stage = assigned.task.stage if assigned else ""
            wants_more = assigned is None or assigned_stage == "diagnose" or assigned.task.trial in busy
            if (wants_more and self.evaluations.begin(may_begin)) or (foreign and self.others.survey()):
                if assigned is not None:
                    self.ready.put_back(assigned)
                continue
            if assigned is None:
                if self.leases.look(POLL_SECONDS, at_all=True):
                    continue
                return None
            if assigned.stored is not None:  # another driver finished it in the meantime
                self.leases.release(assigned.task.lease)
                assigned.found = assigned.stored
                self._after(assigned)
            else:
                self.running.append(assigned)
                return assigned

    def finished(self, assigned: Assigned) -> None:
        """The worker ended well: what it made is in the store."""
        self.running.remove(assigned)
        if assigned.task.stage != "evaluate":
            self.leases.release(assigned.task.lease)
        self._after(assigned)

    def interrupted(self, assigned: Assigned) -> None:
        """It waits again, for whichever driver has a device for it first."""
        self.running.remove(assigned)
        assigned.started = False
        if assigned.task.stage != "evaluate":
            self.leases.release(assigned.task.lease)
        self.ready.put_back(assigned)

    def gave_up(self, assigned: Assigned, reason: str, log: list[str]) -> None:
        """All retries failed: a record says why and how to run it again, and the rest goes on."""
        self.running.remove(assigned)
        task = assigned.task
        command = task.retry_command(self.command)
        self.failed.append(Failure(task.title, task.trial, reason, tuple(log), command))
        task.failed(self, reason, log)
        if task.stage != "evaluate":
            self.leases.release(task.lease)

    def left_alone(self, assigned: Assigned, reason: str, log: list[str]) -> None:
        """No machine here can do it, which is no fault of the task: nothing is recorded, the next run tries again."""
        self.running.remove(assigned)
        task = assigned.task
        self.failed.append(Failure(task.title, task.trial, reason, tuple(log), self.command))
        task.left_alone(self)
        if task.stage != "evaluate":
            self.leases.release(task.lease)

    def leave(self, assigned: Assigned, reason: str) -> None:
        """The same of a task that waits."""
        if self.ready.take(lambda one: one is assigned) is assigned:
            self.running.append(assigned)
            self.left_alone(assigned, reason, [])

    def lost_leases(self) -> list[Assigned]:
        """What runs here under a lease that another driver has now, and must end; `lost` is told when it has."""
        names = set(self.leases.lost())
        return [one for one in self.running if one.task.lease in names] if names else []

    def lost(self, assigned: Assigned) -> None:
        """It ended because another driver has it: that one's result is waited for."""
        lease = assigned.task.lease
        self.running.remove(assigned)
        self.leases.release(lease)
        assigned.started, assigned.not_before = False, time.monotonic() + POLL_SECONDS
        if assigned.task.stage != "evaluate":
            self.ready.put_back(assigned)
        else:
            self.ready.forget(assigned.task)
        self.evaluations.lost(lease, assigned.not_before)

    def close(self) -> None:
        self.leases.release_all()

    def _is_free(self, assigned: Assigned) -> bool:
        return assigned.not_before <= time.monotonic() and not self.leases.is_refused(assigned.task.lease)

    def _take(self, assigned: Assigned) -> bool:
        if assigned.not_before or assigned.rank:
            assigned.stored = assigned.task.stored(self)
            if assigned.stored is not None:
                return True  # whoever had it has finished it: it needs no lease any more
        if not self.leases.take(assigned.task.lease):
            assigned.not_before = time.monotonic() + POLL_SECONDS
            return False
        assigned.stored = assigned.task.stored(self)
        return True

    def _after(self, assigned: Assigned) -> None:
        self.done[assigned.task.stage] += 1
        self.pace.end(assigned)
        assigned.task.after(self, assigned.found)

    def _look_at(self, labels: list[str]) -> None:
        """Write down what the study consists of now, and queue what is missing of these labels."""
        cells = planned.expand(self.study, self.chosen)
        self.cells = {cell.trial: cell for cell in cells if cell.trial is not None}
        self._waiting = [cell for cell in cells if cell.trial is None]
        known = next(iter(self.cells.values()), None)
        if known is not None:
            passes = diagnosis_passes(known.config, self.study.evaluation.images)
            self._after_training = evaluations_of(self.study, known), passes * len(diagnoses_of(self.study, known))
        write_manifest(self.store, planned.manifest(self.study, cells, self.command or None))
        stored = stored_results(self.store)
        owners: dict[str | None, str] = {}  # a search may choose the study's own values: the same trials, done once
        for cell, state in zip(cells, planned.states(cells, self.store), strict=True):
            if owners.setdefault(cell.trial, cell.label) != cell.label or cell.trial is None:
                continue
            if cell.label not in labels:
                continue
            if state == "failed" and not self.retry_failed:
                self.failed.append(Failure(f"{cell.label} seed {cell.seed}", cell.trial, stored=True))
            elif state == "done":
                self._queue_evaluations(cell, stored)
            elif state != "collapsed":
                self.ready.add(Training(cell.label, cell.config, cell.trial))
        for label in labels:
            self.evaluations.label_changed(label)

    def _advance_searches(self) -> None:
        for one in self.candidates.advance():
            if one.chosen is None:
                self.failed.append(Failure(f"search of {one.label}", reason=one.reason))
            else:
                self.chosen[one.label] = one.chosen
                # Which trials these are was not known when the weights of all others were looked at.
                cells = [cell for cell in planned.expand(self.study, self.chosen) if cell.label == searched(one.label)]
                set_damaged_weights_aside(self.study, self.store, cells)
                self._look_at([searched(one.label)])

    def training_ended(self, task: Training, found: Sequence[Any] = (), stored: Collection[str] = ()) -> None:
        """`found` is its record where a worker of this driver wrote it, `stored` what is there of its evaluations."""
        self.training_failed(task)
        record = found[0] if found else self.store.trial_record(task.trial)
        if record is not None and record.status == "done":
            self._note_best(task.label, record.metrics)
            if learned_nothing(record):
                self.near_chance.append(task.title)
            self._queue_evaluations(self.cells[task.trial], stored)

    def training_failed(self, task: Training) -> None:
        self.ready.training_ended(task.label)
        if self.ready.is_trained(task.label):
            self.evaluations.label_changed(task.label)

    def _note_best(self, label: str, metrics: Mapping[str, float]) -> None:
        for name in ("best_validation_validation", "best_test_test"):
            robust = metrics.get(f"{name}_pgd_accuracy")
            if robust is not None:
                self.best[label] = max(self.best.get(label, 0.0), robust)
                self.evaluations.survival.note(label, metrics.get(f"{name}_clean_accuracy"), robust)
                return

    def _queue_evaluations(self, cell: planned.Cell, stored: Collection[str] = ()) -> None:
        """`stored` are records that are known to be there; others are looked for when it is their turn."""
        self.evaluations.add(cell, stored)
        for diagnosis in diagnoses_of(self.study, cell):
            if diagnosis.record not in stored:
                self.ready.add(DiagnosisTask(cell.label, cell.config, diagnosis.trial, diagnosis=diagnosis))

    def _expected_trainings(self) -> float:
        """The cost of what waits for a search: its next candidates, its label's trainings."""
        return sum(training_cost(cell.config) for cell in self._waiting) + self.candidates.expected_cost()
