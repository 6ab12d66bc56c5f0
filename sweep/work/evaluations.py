"""The evaluations of a sweep that have no record yet: they wait, are begun phase by phase, and end with a record.

Those of one trial are leased and looked at together: one listing says what is stored of them all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from sweep.evaluation.asked import Evaluation, evaluations_of
from sweep.evaluation.items import conclude, is_finished, open_items
from sweep.evaluation.progress import EvaluationProgress
from sweep.search.stored import POLL_SECONDS
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.drivers import HeldLeases
from sweep.store.records.evaluation import ShardRecord
from sweep.store.records.trial import TrialRecord
from sweep.studies.model import Study
from sweep.trials.cells import Cell
from sweep.work.ordered import Ordered
from sweep.work.ready import Ready
from sweep.work.survival import Survival
from sweep.work.tasks import EvaluationPiece


@dataclass(eq=False)
class BegunEvaluation:
    """It becomes tasks phase by phase."""

    evaluation: Evaluation
    progress: EvaluationProgress
    phase: str = ""  # the present one
    pieces_left: int = 0  # of that
    broken: bool = False  # one of its pieces failed for good


@dataclass(eq=False)
class OpenTrial:
    """A trial with evaluations that have no record; begun when it is its turn and nobody else has it."""

    cell: Cell
    trial: str
    missing: list[Evaluation]
    not_before: float = 0.0
    is_trained: bool = True  # known to have weights; otherwise it has a record that nobody has looked at here
    begun: dict[str, BegunEvaluation] = field(default_factory=dict)  # by folder

    @property
    def lease(self) -> str:
        return layout.evaluations_lease(self.trial)

    @property
    def cost(self) -> float:
        return sum(one.cost for one in self.missing)


class OpenEvaluations:
    def __init__(self, study: Study, store: Store, leases: HeldLeases, ready: Ready) -> None:
        self.study, self.store, self.leases, self.ready = study, store, leases, ready
        self.waiting = Ordered(self._order)
        self.count = 0  # of the evaluations that wait to be begun
        self.survival = Survival()
        self.at_once = 1  # tasks that the devices hold, as the cluster is now
        self._begun: dict[str, OpenTrial] = {}  # by lease
        self._begun_count = 0  # of their evaluations
        self._of_label: defaultdict[str, dict[OpenTrial, None]] = defaultdict(dict)  # those that wait

    def add(self, cell: Cell, stored: Collection[str] = (), *, is_trained: bool = True) -> None:
        """What a finished trial lacks; `stored` are records that are known to be there."""
        assert cell.trial is not None
        missing = []
        for evaluation in evaluations_of(self.study, cell):
            if evaluation.record not in stored:
                missing.append(evaluation)
        if missing:
            self._wait(OpenTrial(cell, cell.trial, missing, is_trained=is_trained))

    def label_changed(self, label: str) -> None:
        """Its trainings have ended, or new ones have come: its evaluations are more or less urgent now."""
        for one in self._of_label[label]:
            self.waiting.replace(one)

    def shares_changed(self) -> None:
        """Others have come or gone who share the work."""
        self.waiting.replace_all()

    def stored_by_others(self, stored: Collection[str]) -> None:
        """These records are there: whoever made them has finished them."""
        for one in list(self.waiting):
            done = [evaluation for evaluation in one.missing if evaluation.record in stored]
            if done:
                self._wait_no_more(one)
                one.missing = [evaluation for evaluation in one.missing if evaluation.record not in stored]
                if one.missing:
                    self._wait(one)

    def begin(self, may_begin: Callable[[OpenTrial], bool]) -> bool:
        """Begin the evaluations of the most urgent trial that nobody else has; whether there was one."""
        now = time.monotonic()
        for one in self.waiting:
            if one.not_before > now or not may_begin(one) or self.leases.is_refused(one.lease):
                continue
            is_uncertain = self.ready.rank(one.trial) > 0 or not one.is_trained
            if (is_uncertain and self._is_done(one)) or self.leases.take(one.lease):
                self._wait_no_more(one)
                if self.leases.has(one.lease):
                    self._begun[one.lease] = one
                    self._open(one)
                return True
            one.not_before = now + POLL_SECONDS
        return False

    def piece_ended(self, task: EvaluationPiece, found: Sequence[ShardRecord] = (), *, failed: bool = False) -> None:
        """After the last piece of a phase the next phase is opened: its images are the survivors of all pieces."""
        self.ready.forget(task)
        one = self._begun.get(task.lease)
        opened = one.begun.get(task.item.evaluation.folder) if one else None
        if one is None or opened is None:  # another driver took it over while this piece ended
            return
        if found:
            opened.progress.add(found)
        else:
            opened.progress.look()
        opened.pieces_left -= 1
        opened.broken = opened.broken or failed
        if opened.pieces_left:
            return
        if opened.broken:
            self._close(one, opened)
        else:
            self._open_phase(one, opened)

    def expected_cost(self) -> float:
        """Of all that has no task yet: trials that wait, and later phases of what is begun."""
        waiting = sum(self.survival.cost(one.cell.label, one.missing) for one in self.waiting)
        return waiting + sum(
            self.survival.later_cost(one.cell.label, opened.evaluation, opened.phase, int(opened.progress.alive.sum()))
            for one in self._begun.values()
            for opened in one.begun.values()
        )

    def lost(self, lease: str, not_before: float) -> None:
        """Another driver has these as a whole, with the pieces that wait: they are looked at again later."""
        one = self._begun.pop(lease, None)
        if one is not None:
            self.ready.drop(lease)
            self._begun_count -= len(one.begun)
            one.not_before, one.begun = not_before, {}
            self._wait(one)

    def _wait(self, one: OpenTrial) -> None:
        self.waiting.add(one)
        self._of_label[one.cell.label][one] = None
        self.count += len(one.missing)

    def _wait_no_more(self, one: OpenTrial) -> None:
        self.waiting.remove(one)
        del self._of_label[one.cell.label][one]
        self.count -= len(one.missing)

    def _order(self, one: OpenTrial) -> tuple[bool, bool, float, float]:
        rank = self.ready.rank(one.trial)
        return rank > 0, not self.ready.is_trained(one.cell.label), -one.cost, rank

    def _is_done(self, one: OpenTrial) -> bool:
        """Whether another driver has finished it, or its training was nothing to evaluate."""
        stored = self.store.paths(layout.evaluations_of(one.trial))
        if not one.is_trained and not all(evaluation.record in stored for evaluation in one.missing):
            record = self.store.usable(TrialRecord, layout.trial_record(one.trial))
            if record is None or record.status != "done":
                return True
            one.is_trained = True
        return all(evaluation.record in stored for evaluation in one.missing)

    def _open(self, one: OpenTrial) -> None:
        paths = self.store.paths(layout.evaluations_of(one.trial))
        for evaluation in list(one.missing):
            inside = [path for path in paths if path.startswith(f"{evaluation.folder}/")]
            shards = [path for path in inside if layout.kind_at(path) == ShardRecord.kind]
            if evaluation.record in paths and is_finished(self.store, evaluation):
                for path in shards:  # whoever wrote the record was killed before it could
                    self.store.delete(path)
                one.missing.remove(evaluation)
            else:
                progress = EvaluationProgress(self.store, evaluation, shards)
                one.begun[evaluation.folder] = BegunEvaluation(evaluation, progress)
                self._begun_count += 1
        for opened in list(one.begun.values()):
            self._open_phase(one, opened)
        if not one.begun and one.lease in self._begun:
            self._release(one)

    def _open_phase(self, one: OpenTrial, opened: BegunEvaluation) -> None:
        """Queue the pieces of the next phase; without any, the evaluation's record is written."""
        evaluation, cell = opened.evaluation, one.cell
        items = open_items(self.store, evaluation, shards=self._shards(evaluation), progress=opened.progress)
        opened.pieces_left = len(items)
        if items:
            opened.phase = items[0].phase
        for item in items:
            self.ready.add(EvaluationPiece(cell.label, cell.config, one.trial, item=item))
        if not items:
            self._note_survivors(cell.label, opened.progress)
            conclude(self.store, evaluation, opened.progress)
            one.missing.remove(evaluation)
            self._close(one, opened)

    def _note_survivors(self, label: str, progress: EvaluationProgress) -> None:
        if len(progress.after) > 2:
            right, robust = (float(alive.mean()) for alive in list(progress.after.values())[:2])
            self.survival.note(label, right, robust)

    def _shards(self, evaluation: Evaluation) -> int:
        """Near the end a phase is cut for all devices, so that none idles while one does the last evaluation."""
        left = len(self.ready) - self.ready.count("evaluate") + self.count + self._begun_count
        return max(evaluation.shards, self.at_once if left < 2 * self.at_once else 1)

    def _close(self, one: OpenTrial, opened: BegunEvaluation) -> None:
        del one.begun[opened.evaluation.folder]
        self._begun_count -= 1
        if not one.begun:
            self._release(one)

    def _release(self, one: OpenTrial) -> None:
        del self._begun[one.lease]
        self.leases.release(one.lease)
