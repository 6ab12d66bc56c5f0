"""What a sweep still has to do, and in which order: candidates of searches, then trainings, then evaluations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sweep.evaluation.asked import Evaluation, diagnoses_of, evaluations_of
from sweep.evaluation.items import conclude, open_items
from sweep.evaluation.progress import EvaluationProgress
from sweep.search.search import Search
from sweep.search.stored import POLL_SECONDS, OpenSearches, store_search
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.leases import HeldLeases
from sweep.store.manifests import write_manifest
from sweep.store.records import CandidateRecord, CurveRow, EvaluationRecord, TrialRecord
from sweep.studies.model import Study, searched
from sweep.trials import cells as planned
from sweep.trials.cost import PRUNED_SHARE, training_cost
from sweep.work.pace import Pace, kind
from sweep.work.ready import Assigned, Ready
from sweep.work.summary import Failure
from sweep.work.tasks import CandidateTraining, DiagnosisTask, EvaluationPiece, Training, evaluation_lease
from sweep.work.training import forget
from trainers.chance import near_chance
from trainers.data import dataset_facts

OTHERS_SECONDS = 5.0


def learned_nothing(record: TrialRecord) -> bool:
    headline = record.config.selection.headline
    known = [record.metrics.get(f"{headline}_{split}_clean_accuracy") for split in ("validation", "test")]
    clean = next((value for value in known if value is not None), None)
    return clean is not None and near_chance(clean, dataset_facts(record.config.dataset).classes)


@dataclass(eq=False)
class OpenEvaluation:
    """An evaluation without a record; it becomes tasks phase by phase, when it is its turn and nobody else has it."""

    cell: planned.Cell
    evaluation: Evaluation
    not_before: float = 0.0
    progress: EvaluationProgress | None = None  # as far as it was read, since it is ours
    pieces_left: int = 0  # of its present phase
    broken: bool = False  # one of its pieces failed for good

    @property
    def lease(self) -> str:
        return evaluation_lease(self.evaluation.folder)

    @property
    def cost(self) -> float:
        return self.evaluation.cost


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
        self.at_once = 1  # tasks that the devices hold, as the cluster is now
        self.near_chance: list[str] = []  # titles of trainings that learned next to nothing
        self.pace = Pace()
        self.leases = HeldLeases(store)
        self.chosen = planned.chosen_values(study, store)
        self.searches = OpenSearches(study, store, self.leases, self.chosen, retry_failed)
        self.cells: dict[str, planned.Cell] = {}  # by trial
        self._waiting: list[planned.Cell] = []  # for their searches
        self._evaluations: list[OpenEvaluation] = []  # not begun
        self._unsorted = False  # sorted when one is opened, not ten thousand times
        self._begun: dict[str, OpenEvaluation] = {}  # by lease
        self._evaluated = 0.0  # cost of evaluations that are stored, done before or now
        self._evaluation_cost = 0.0  # of each trial
        self._others: list[str] = []
        self._next_look_at_others = 0.0
        self._look_at(list(study.columns()))

    @property
    def complete(self) -> bool:
        return not self.left

    @property
    def left(self) -> int:
        return len(self.ready) + len(self.running) + len(self.searches.open) + len(self._evaluations)

    def seconds_left(self) -> float | None:
        """A guess at the wall time of all that is left, queued or not; None before anything is done."""
        left = {"train": self._expected_trainings(), "evaluate": self._expected_evaluations(), "diagnose": 0.0}
        for assigned in [*self.ready, *self.running]:
            if assigned.task.stage != "evaluate":  # all of these are expected: an evaluation queues one phase at a time
                left[kind(assigned)] += assigned.task.cost * (1 - assigned.share)
        return self.pace.seconds_left(left, self.running)

    def waits_for(self) -> list[str]:
        """The other drivers that have all that is left, as long as nothing of it runs here; asked now and then."""
        if self.running or not self.left:
            return []
        if time.monotonic() > self._next_look_at_others:
            self._next_look_at_others = time.monotonic() + OTHERS_SECONDS
            self._others = [holder.title for holder in self.leases.others()]
        return self._others

    def waiting(self, stage: str) -> int:
        """How many of a stage wait, for a device or to be opened."""
        queued = sum(one.task.stage == stage and not one.started for one in (*self.ready, *self.running))
        return queued + (len(self._evaluations) if stage == "evaluate" else 0)

    def startable(self, at_most: int) -> int:
        """How many tasks could start now, as far as is known without taking them; never more than asked about."""
        self._advance_searches()
        if not at_most or not self.may_start():
            return 0
        now = time.monotonic()

        def is_free(waiting: Assigned | OpenEvaluation, lease: str) -> bool:
            return waiting.not_before <= now and not self.leases.is_refused(lease)

        found = self.ready.startable(at_most, lambda one: is_free(one, one.task.lease))
        for opened in self._evaluations:
            if found >= at_most:
                break
            found += is_free(opened, opened.lease)
        return found

    def next_task(self, accepts: Callable[[Assigned], bool] = lambda _: True) -> Assigned | None:
        """The most urgent one that nobody else has; None if there is nothing to start at the moment.

        `accepts` says whether whoever asks can do a task.
        """

        def may_have(assigned: Assigned) -> bool:
            return accepts(assigned) and self._may_have(assigned)

        while True:
            self._advance_searches()
            if not self.may_start():
                return None
            assigned = self.ready.take(may_have)
            # Begun evaluations come first: their pieces keep other drivers from them.
            if (assigned is None or assigned.task.stage == "diagnose") and self._open_evaluation():
                if assigned is not None:
                    self.ready.put_back(assigned)
                continue
            if assigned is None:
                return None
            if assigned.task.is_stored(self):  # another driver finished it in the meantime
                self.leases.release(assigned.task.lease)
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
        opened = self._begun.pop(lease, None)
        if assigned.task.stage != "evaluate":
            self.ready.put_back(assigned)
        else:
            self.ready.forget(assigned.task)
        if opened is not None:  # the evaluation as a whole is theirs, with the pieces that wait
            self.ready.drop(lease)
            opened.not_before, opened.pieces_left, opened.broken = assigned.not_before, 0, False
            self._evaluations.append(opened)
            self._unsorted = True

    def close(self) -> None:
        self.leases.release_all()

    def _may_have(self, assigned: Assigned) -> bool:
        if assigned.not_before > time.monotonic() or self.leases.is_refused(assigned.task.lease):
            return False
        if assigned.not_before and assigned.task.is_stored(self):
            return True  # whoever had it has finished it: it needs no lease any more
        if not self.leases.take(assigned.task.lease):
            assigned.not_before = time.monotonic() + POLL_SECONDS
            return False
        return True

    def _after(self, assigned: Assigned) -> None:
        self.done[assigned.task.stage] += 1
        self.pace.end(assigned)
        assigned.task.after(self)

    def _look_at(self, labels: list[str]) -> None:
        """Write down what the study consists of now, and queue what is missing of these labels."""
        cells = planned.expand(self.study, self.chosen)
        self.cells = {cell.trial: cell for cell in cells if cell.trial is not None}
        self._waiting = [cell for cell in cells if cell.trial is None]
        known = next(iter(self.cells.values()), None)
        evaluations = evaluations_of(self.study, known) if known else []
        self._evaluation_cost = sum(one.cost for one in evaluations)
        write_manifest(self.store, planned.manifest(self.study, cells))
        # Two listings instead of a question about every file: a remote store answers one in some ten milliseconds.
        stored = {*self.store.record_paths(EvaluationRecord), *self.store.paths(layout.DIAGNOSTICS)}
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

    # Searches

    def _advance_searches(self) -> None:
        grown, ended = self.searches.advance()
        for search in grown:
            self._queue_candidates(search)
        for one in ended:
            if one.chosen is None:
                self.failed.append(Failure(f"search of {one.label}", reason=one.reason))
            else:
                self.chosen[one.label] = one.chosen
                self._look_at([searched(one.label)])

    def _queue_candidates(self, search: Search) -> None:
        settings = search.settings
        for candidate, run in search.trainings():
            config = self.study.search_config(settings.label, candidate.hyperparameters, run.seed)
            self.ready.add(
                CandidateTraining(
                    settings.label,
                    config,
                    run.trial,
                    search=settings.id,
                    index=candidate.index,
                    cut_offs=search.cut_offs(candidate) if candidate.waits else {},
                    metric=settings.metric,
                )
            )

    def candidate_ended(self, task: CandidateTraining) -> None:
        record: TrialRecord | CandidateRecord | None = self.store.trial_record(task.trial)
        if record is None:
            record = self.store.candidate_record(task.search, task.trial)
            forget(self.store, task.trial)  # its worker may have been killed before it could
        assert record is not None
        self._tell(task, record.status, record.curve)

    def candidate_failed(self, task: CandidateTraining) -> None:
        self._tell(task, "failed", ())

    def candidate_left_alone(self, task: CandidateTraining) -> None:
        """What a search chooses never depends on machines: it waits for a run that can train this candidate."""
        search = self.searches.open.pop(task.label, None)
        if search is not None:
            self.leases.release(layout.search_lease(search.settings.id))

    def _tell(self, task: CandidateTraining, state: str, curve: Sequence[CurveRow]) -> None:
        search = self.searches.open.get(task.label)
        if search is None:  # it waits for another run, which finds this candidate in the store
            return
        candidate = search.candidates[task.index]
        run = next(run for run in candidate.runs if run.trial == task.trial)
        search.tell(candidate, run, state, curve)
        store_search(self.store, search)
        self._queue_candidates(search)  # other seeds of those that go on

    # Trainings

    def training_ended(self, task: Training) -> None:
        self.training_failed(task)
        record = self.store.trial_record(task.trial)
        if record is not None and record.status == "done":
            self._note_best(task.label, record.metrics)
            if learned_nothing(record):
                self.near_chance.append(task.title)
            self._queue_evaluations(self.cells[task.trial])

    def training_failed(self, task: Training) -> None:
        self.ready.training_ended(task.label)
        self._unsorted = True

    def _note_best(self, label: str, metrics: Mapping[str, float]) -> None:
        for name in ("best_validation_validation_pgd_accuracy", "best_test_test_pgd_accuracy"):
            if name in metrics:
                self.best[label] = max(self.best.get(label, 0.0), metrics[name])
                return

    # Evaluations

    def _queue_evaluations(self, cell: planned.Cell, stored: Collection[str] | None = None) -> None:
        """`stored` are the records that are there; without it the store is asked about each."""

        def is_there(path: str) -> bool:
            return self.store.exists(path) if stored is None else path in stored

        for evaluation in evaluations_of(self.study, cell):
            if is_there(evaluation.record):
                self._evaluated += evaluation.cost
            else:
                self._evaluations.append(OpenEvaluation(cell, evaluation))
                self._unsorted = True
        for diagnosis in diagnoses_of(self.study, cell):
            if not is_there(diagnosis.record):
                self.ready.add(DiagnosisTask(cell.label, cell.config, diagnosis.trial, diagnosis=diagnosis))

    def _open_evaluation(self) -> bool:
        """Begin the most urgent evaluation that nobody else has; whether there was one."""
        now = time.monotonic()
        if self._unsorted:
            self._evaluations.sort(key=lambda one: (not self.ready.is_trained(one.cell.label), -one.cost))
            self._unsorted = False
        for opened in self._evaluations:
            if opened.not_before > now or self.leases.is_refused(opened.lease):
                continue
            if opened.not_before and self.store.exists(opened.evaluation.record):  # whoever had it has finished it
                self._evaluations.remove(opened)
                self._evaluated += opened.cost
                return True
            if self.leases.take(opened.lease):
                self._evaluations.remove(opened)
                self._begun[opened.lease] = opened
                self._open_phase(opened)
                return True
            opened.not_before = now + POLL_SECONDS
        return False

    def _open_phase(self, opened: OpenEvaluation) -> None:
        """Queue the pieces of the next phase; without any, the evaluation's record is written."""
        items = open_items(
            self.store, opened.evaluation, shards=self._shards(opened.evaluation), progress=opened.progress
        )
        if opened.progress is None and items:
            opened.progress = EvaluationProgress(self.store, opened.evaluation)
        opened.pieces_left = len(items)
        share = 1 / max(1, len(items)) / len(opened.evaluation.attack.phases)
        cell = opened.cell
        for item in items:
            piece = EvaluationPiece(cell.label, cell.config, opened.evaluation.trial, item=item, share=share)
            self.ready.add(piece)
        if not items:
            conclude(self.store, opened.evaluation, opened.progress)
            self._close_evaluation(opened)

    def _shards(self, evaluation: Evaluation) -> int:
        """Near the end a phase is cut for all devices, so that none idles while one does the last evaluation."""
        left = len(self.ready) + len(self._evaluations) + len(self._begun)
        return max(evaluation.shards, self.at_once if left < 2 * self.at_once else 1)

    def _close_evaluation(self, opened: OpenEvaluation) -> None:
        del self._begun[opened.lease]
        self.leases.release(opened.lease)

    def piece_ended(self, task: EvaluationPiece, *, failed: bool = False) -> None:
        """After the last piece of a phase the next phase is opened: its images are the survivors of all pieces."""
        opened = self._begun.get(task.lease)
        if opened is None:  # another driver took the evaluation over while this piece ended
            return
        opened.pieces_left -= 1
        opened.broken = opened.broken or failed
        self._evaluated += 0.0 if failed else task.cost
        if opened.pieces_left:
            return
        if opened.broken:
            self._close_evaluation(opened)
        else:
            self._open_phase(opened)

    def _expected_trainings(self) -> float:
        """The cost of what waits for a search: its next candidates, its label's trainings."""
        waiting = sum(training_cost(cell.config) for cell in self._waiting)
        for label, search in self.searches.open.items():
            settings = self.study.search[label]
            missing = search.wanted - len(search.candidates) if search else settings.candidates
            trainings = missing * len(settings.seeds)
            waiting += PRUNED_SHARE * trainings * training_cost(self.study.search_config(label, {}))
        return waiting

    def _expected_evaluations(self) -> float:
        return max(0.0, self._evaluation_cost * (len(self.cells) + len(self._waiting)) - self._evaluated)
