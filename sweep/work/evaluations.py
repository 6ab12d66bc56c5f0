"""The evaluations of a sweep that have no record yet: they wait, are begun phase by phase, and end with a record."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from sweep.evaluation.asked import Evaluation, evaluations_of
from sweep.evaluation.items import conclude, open_items
from sweep.evaluation.progress import EvaluationProgress
from sweep.search.stored import POLL_SECONDS
from sweep.store.base import Store
from sweep.store.leases import HeldLeases
from sweep.studies.model import Study
from sweep.trials.cells import Cell
from sweep.work.ready import Ready
from sweep.work.tasks import EvaluationPiece, evaluation_lease


@dataclass(eq=False)
class OpenEvaluation:
    """It becomes tasks phase by phase, when it is its turn and nobody else has it."""

    cell: Cell
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


class OpenEvaluations:
    def __init__(self, study: Study, store: Store, leases: HeldLeases, ready: Ready) -> None:
        self.study, self.store, self.leases, self.ready = study, store, leases, ready
        self.waiting: list[OpenEvaluation] = []
        self.done_cost = 0.0  # of those that are stored, done before or now
        self.at_once = 1  # tasks that the devices hold, as the cluster is now
        self._begun: dict[str, OpenEvaluation] = {}  # by lease
        self._unsorted = False  # sorted when one is opened, not ten thousand times

    def add(self, cell: Cell, stored: Collection[str] | None = None) -> None:
        """What a finished trial lacks. `stored` are the records that are there; without it the store is asked."""
        for evaluation in evaluations_of(self.study, cell):
            if self.store.exists(evaluation.record) if stored is None else evaluation.record in stored:
                self.done_cost += evaluation.cost
            else:
                self.waiting.append(OpenEvaluation(cell, evaluation))
                self._unsorted = True

    def order_changed(self) -> None:
        """A label's trainings may have ended: its evaluations go before others."""
        self._unsorted = True

    def begin(self) -> bool:
        """Begin the most urgent evaluation that nobody else has; whether there was one."""
        now = time.monotonic()
        if self._unsorted:
            self.waiting.sort(key=lambda one: (not self.ready.is_trained(one.cell.label), -one.cost))
            self._unsorted = False
        for opened in self.waiting:
            if opened.not_before > now or self.leases.is_refused(opened.lease):
                continue
            if opened.not_before and self.store.exists(opened.evaluation.record):  # whoever had it has finished it
                self.waiting.remove(opened)
                self.done_cost += opened.cost
                return True
            if self.leases.take(opened.lease):
                self.waiting.remove(opened)
                self._begun[opened.lease] = opened
                self._open_phase(opened)
                return True
            opened.not_before = now + POLL_SECONDS
        return False

    def piece_ended(self, task: EvaluationPiece, *, failed: bool = False) -> None:
        """After the last piece of a phase the next phase is opened: its images are the survivors of all pieces."""
        opened = self._begun.get(task.lease)
        if opened is None:  # another driver took the evaluation over while this piece ended
            return
        opened.pieces_left -= 1
        opened.broken = opened.broken or failed
        self.done_cost += 0.0 if failed else task.cost
        if opened.pieces_left:
            return
        if opened.broken:
            self._close(opened)
        else:
            self._open_phase(opened)

    def lost(self, lease: str, not_before: float) -> None:
        """Another driver has this one as a whole, with the pieces that wait: it is looked at again later."""
        opened = self._begun.pop(lease, None)
        if opened is not None:
            self.ready.drop(lease)
            opened.not_before, opened.pieces_left, opened.broken = not_before, 0, False
            self.waiting.append(opened)
            self._unsorted = True

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
            self._close(opened)

    def _shards(self, evaluation: Evaluation) -> int:
        """Near the end a phase is cut for all devices, so that none idles while one does the last evaluation."""
        left = len(self.ready) + len(self.waiting) + len(self._begun)
        return max(evaluation.shards, self.at_once if left < 2 * self.at_once else 1)

    def _close(self, opened: OpenEvaluation) -> None:
        del self._begun[opened.lease]
        self.leases.release(opened.lease)
