"""The remaining work of a sweep, in order: candidates of searches, trainings, attacks, then diagnoses."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

from sweep.evaluation.asked import Evaluation, diagnoses_of, evaluations_of, stored_results
from sweep.evaluation.attack import is_one_chunk
from sweep.store.base import Store
from sweep.store.lease_upkeep import busy
from sweep.store.leases import Holder
from sweep.store.manifests import write_manifest
from sweep.studies.model import Study, searched
from sweep.trials import cells as planned
from sweep.trials.cost import diagnosis_passes, training_cost
from sweep.work.damage import set_damaged_weights_aside
from sweep.work.item import Item
from sweep.work.pace import Pace
from sweep.work.pieces import STAGES, Attack, Candidate, DiagnosisPiece, Metrics, Piece, Training
from sweep.work.searches import Searches
from sweep.work.summary import Failure
from trainers.data import dataset_facts
from trainers.measures.chance import near_chance

LOOK_SECONDS = 2.0  # interval between looks at other drivers' leases
HELP_SECONDS = 1.0  # minimum interval between additional workers for one attack
AGAIN_SECONDS = 5.0  # pause after a worker has left an attack: other drivers may have the remaining chunks

Key = tuple[int, bool, float, int]


class Queue:
    """All missing work of a study. Work that other drivers are doing is waited for.

    Args:
        may_start: Return whether anything may be started now. False when the budget is used up.
    """

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
        self.items: dict[str, Item] = {}  # all known pieces that are not done, by name
        self.taken: dict[str, Item] = {}  # those that were given out
        self.done: Counter[str] = Counter()
        self.failed: list[Failure] = []
        self.best: dict[str, float] = {}  # by label: robust accuracy of the best seed so far
        self.near_chance: list[str] = []  # titles of trainings that learned next to nothing
        self.pace = Pace()
        self.owners: set[str] = set()  # owners of the leases of this sweep's workers
        self._numbers = itertools.count()
        self._heap: list[tuple[Key, Item]] = []
        self._aside: list[Item] = []  # not for the next worker, but for the one after it
        self._attacked: set[str] = set()  # leases of finished attacks
        self._refused: dict[str, Item] = {}  # pieces whose lease another driver's worker holds
        self._leases: dict[str, Holder] = {}  # of other drivers, at the last look
        self._looked = -LOOK_SECONDS
        self._untrained: Counter[str] = Counter()  # by label: trainings that have not ended
        self.chosen = planned.chosen_values(study, store)
        self.searches = Searches(study, store, self.chosen, retry_failed=retry_failed)
        self.cells: dict[str, planned.Cell] = {}  # by trial
        self._waiting: list[planned.Cell] = []  # cells whose search has not chosen yet
        self._add_columns(list(study.columns()))

    @property
    def left(self) -> int:
        return len(self.items) + len(self.searches)

    @property
    def complete(self) -> bool:
        return not self.left

    @property
    def running(self) -> list[Item]:
        """The pieces that have a device now."""
        return [item for item in self.taken.values() if item.has_device]

    def next(self, *, helpers: int = 1) -> Item | None:
        """Give out the most urgent piece that no other driver has, or None if nothing can start at the moment.

        `helpers` is how many workers an attack may have when nothing else remains to be started.
        """
        self._advance_searches()
        if not self.may_start():
            return None
        self._look_at_leases()
        item = self._take()
        while self._aside:
            self._push(self._aside.pop())
        item = item or self._take() or self._helper(helpers)
        if item is not None:
            item.is_taken, self.taken[item.piece.name] = True, item
        return item

    def begin(self, item: Item) -> None:
        """Record that a worker has begun with a piece."""
        item.begin()
        self.pace.begin()

    def ready(self) -> int:
        """Return how many pieces wait for a device."""
        return len({item.piece.name for _, item in self._heap if self._is_waiting(item)})

    def finished(self, item: Item, metrics: Metrics) -> None:
        """Record a piece that succeeded; its record is in the store."""
        self._remove(item)
        if item.piece.lease not in self._attacked:  # an attack by several workers counts once
            self.done[item.piece.stage] += 1
        self.pace.end(item)
        self._follow(item.piece, metrics)

    def shared(self, item: Item) -> None:
        """Record a worker that left an attack because other workers have the remaining chunks."""
        piece = item.piece
        assert isinstance(piece, Attack)
        self._remove(item)
        self.pace.end(item)
        for other in self.taken.values():
            if other.piece.lease == piece.lease:
                other.helped, other.free = time.monotonic() + AGAIN_SECONDS, 0
        if not any(other.piece.lease == piece.lease for other in self.items.values()):
            self.refused(self._new_item(replace(piece, part=1, parts=1)))

    def refused(self, item: Item) -> None:
        """Hold a piece back until no other driver holds its lease."""
        self._release(item)
        self._refused[item.piece.name] = item

    def again(self, item: Item) -> None:
        """Queue a piece again after an interrupted attempt."""
        self._release(item)
        self._push(item)

    def elsewhere(self, item: Item) -> None:
        """Queue a piece that its worker's node cannot do. It comes after the next piece, which that worker may do."""
        self._release(item)
        self._aside.append(item)

    def gave_up(self, item: Item, reason: str, log: list[str]) -> None:
        """Record a piece that failed for good. The remaining work continues."""
        piece = item.piece
        self._remove(item)
        command = piece.retry_command(self.command)
        self.failed.append(Failure(piece.title, piece.trial, reason, tuple(log), command))
        record = piece.failed_record(reason, log, self.command)
        if record is not None:
            self.store.write_record(record)
        if isinstance(piece, Candidate):
            self._add_all(self.searches.tell(piece))
        elif isinstance(piece, Training):
            self._trained(piece.label)

    def left_alone(self, item: Item, reason: str, log: list[str]) -> None:
        """Drop a piece that no machine here can do. Nothing is recorded, so the next run tries it again."""
        piece = item.piece
        self._remove(item)
        self.failed.append(Failure(piece.title, piece.trial, reason, tuple(log), self.command))
        if isinstance(piece, Candidate):
            self.searches.leave(piece.label)
        elif isinstance(piece, Training):
            self._trained(piece.label)

    def waits_for(self) -> list[str]:
        """Return the titles of other drivers' processes if they hold all remaining work."""
        if self.taken or not self._refused:
            return []
        leases = {item.piece.lease for item in self._refused.values()}
        return sorted({holder.title for name, holder in self._leases.items() if name.partition("~")[0] in leases})

    def waiting(self, stage: str) -> int:
        return sum(item.piece.stage == stage and not item.has_device for item in self.items.values())

    def seconds_left(self) -> float | None:
        """Return the estimated wall seconds of all remaining work, or None before anything is done."""
        costs = {"train": self._expected_trainings(), "attack": 0.0, "diagnose": 0.0}
        untrained = Counter(cell.label for cell in self._waiting) + self._untrained
        for item in self.items.values():
            costs[self.pace.kind(item)] += item.piece.cost * (1 - item.share)
        attacks, diagnoses = self._after_training
        costs["attack"] += untrained.total() * sum(evaluation.cost for evaluation in attacks)
        costs["diagnose"] += untrained.total() * diagnoses
        return self.pace.seconds_left(costs, self.running)

    def close(self) -> None:
        self.searches.close()

    # The work to be done

    def _add_columns(self, columns: list[str]) -> None:
        """Write the study's present cells to the manifest, and queue the missing pieces of these columns."""
        cells = planned.expand(self.study, self.chosen)
        self.cells = {cell.trial: cell for cell in cells if cell.trial is not None}
        self._waiting = [cell for cell in cells if cell.trial is None]
        write_manifest(self.store, planned.manifest(self.study, cells, self.command or None))
        self._after_training = self._expected_afterwards()
        stored = stored_results(self.store)
        owners: dict[str | None, str] = {}  # a search may choose the study's own values: the same trials, done once
        for cell, state in zip(cells, planned.states(cells, self.store), strict=True):
            if owners.setdefault(cell.trial, cell.label) != cell.label or cell.trial is None:
                continue
            if cell.label not in columns:
                continue
            if state == "failed" and not self.retry_failed:
                self.failed.append(Failure(f"{cell.label} seed {cell.seed}", cell.trial, stored=True))
            elif state == "done":
                self._add_attacks(cell, stored)
            elif state != "collapsed":
                self._untrained[cell.label] += 1
                self._add(Training(cell.label, cell.config, cell.trial))

    def _add_attacks(self, cell: planned.Cell, stored: Collection[str]) -> None:
        """Queue the missing attacks and diagnoses of a trained cell. `stored` are the records known to exist."""
        assert cell.trial is not None
        for evaluation in evaluations_of(self.study, cell):
            if evaluation.record not in stored:
                parts = 1 if is_one_chunk(evaluation) else evaluation.shards
                for part in range(1, parts + 1):
                    self._add(Attack(cell.label, cell.config, cell.trial, evaluation, part, parts))
        for diagnosis in diagnoses_of(self.study, cell):
            if diagnosis.record not in stored:
                self._add(DiagnosisPiece(cell.label, cell.config, cell.trial, diagnosis))

    def _advance_searches(self) -> None:
        candidates, ended = self.searches.advance()
        self._add_all(candidates)
        for end in ended:
            if end.chosen is None:
                self.failed.append(Failure(f"search of {end.label}", reason=end.reason))
                continue
            self.chosen[end.label] = end.chosen
            # These trials were unknown when the weights of all others were checked.
            column = searched(end.label)
            cells = [cell for cell in planned.expand(self.study, self.chosen) if cell.label == column]
            set_damaged_weights_aside(self.study, self.store, cells)
            self._add_columns([column])

    def _follow(self, piece: Piece, metrics: Metrics) -> None:
        """Queue the pieces that a finished one makes possible."""
        if isinstance(piece, Candidate):
            self._add_all(self.searches.tell(piece))
        elif isinstance(piece, Training):
            self._trained(piece.label)
            if metrics["state"] == "done":
                self._note_accuracy(piece, metrics)
                self._add_attacks(self.cells[piece.trial], ())
        elif isinstance(piece, Attack):
            self._attacked.add(piece.lease)
            for other in [other for other in self.items.values() if other.piece.lease == piece.lease]:
                if not other.is_taken:
                    self._remove(other)  # the other workers did its share

    def _note_accuracy(self, piece: Training, metrics: Metrics) -> None:
        robust, clean = metrics.get("robust_accuracy"), metrics.get("clean_accuracy")
        if robust is not None:
            self.best[piece.label] = max(self.best.get(piece.label, 0.0), robust)
        if clean is not None and near_chance(clean, dataset_facts(piece.config.dataset).classes):
            self.near_chance.append(piece.title)

    def _trained(self, label: str) -> None:
        """Record the end of a training. After a column's last one, its attacks become more urgent."""
        self._untrained[label] -= 1
        if not self._untrained[label]:
            for item in self.items.values():
                if item.piece.label == label and item.piece.stage == "attack" and self._is_waiting(item):
                    self._push(item)

    # The order

    def _add_all(self, pieces: Collection[Piece]) -> None:
        for piece in pieces:
            self._add(piece)

    def _add(self, piece: Piece) -> None:
        """Queue a piece, unless it is queued already."""
        if piece.name not in self.items:
            self._push(self._new_item(piece))

    def _new_item(self, piece: Piece) -> Item:
        item = self.items[piece.name] = Item(piece, next(self._numbers))
        return item

    def _push(self, item: Item) -> None:
        heapq.heappush(self._heap, (self._key(item), item))

    def _key(self, item: Item) -> Key:
        """Return the sort key: stage, then columns whose trainings have all ended, then the longest piece."""
        piece = item.piece
        is_partial = piece.stage == "attack" and self._untrained[piece.label] > 0
        return STAGES.index(piece.stage), is_partial, -piece.cost, item.number

    def _is_waiting(self, item: Item) -> bool:
        name = item.piece.name
        return self.items.get(name) is item and not item.is_taken and name not in self._refused

    def _take(self) -> Item | None:
        while self._heap:
            _, item = heapq.heappop(self._heap)
            if not self._is_waiting(item):
                continue  # an outdated entry: the piece was pushed again or removed
            if item.piece.lease in self._leases or self._is_at_work(item.piece):  # of an attack, chunks may be free
                self.refused(item)
                continue
            return item
        return None

    def _is_at_work(self, piece: Piece) -> bool:
        """Return whether the same training runs here for another search."""
        return piece.is_leased and any(other.piece.lease == piece.lease for other in self.taken.values())

    def _helper(self, helpers: int) -> Item | None:
        """Return another worker's share of a running attack, if nothing else remains to be done."""
        now = time.monotonic()
        attacks = Counter(item.piece.lease for item in self.taken.values())
        for item in list(self.taken.values()):
            piece = item.piece
            if not isinstance(piece, Attack) or attacks[piece.lease] >= min(helpers, 1 + item.free):
                continue
            if now - item.helped > HELP_SECONDS:
                item.helped = now
                part = 1 + attacks[piece.lease]
                while (helper := replace(piece, part=part, parts=max(part, helpers))).name in self.items:
                    part += 1
                return self._new_item(helper)
        return None

    def _release(self, item: Item) -> None:
        item.is_taken = item.has_device = False
        self.taken.pop(item.piece.name, None)

    def _remove(self, item: Item) -> None:
        self._release(item)
        self.items.pop(item.piece.name, None)
        self._refused.pop(item.piece.name, None)

    # The work of other drivers

    def _look_at_leases(self) -> None:
        """Read which leases other drivers hold. Remove pieces that they finished; queue pieces that they gave up."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        leases = busy(self.store)
        self._looked = time.monotonic()
        self._leases = {name: holder for name, holder in leases.items() if holder.owner not in self.owners}
        for name, item in list(self._refused.items()):
            if self._is_done_elsewhere(item.piece):
                continue
            del self._refused[name]
            metrics = item.piece.stored(self.store, retry_failed=self.retry_failed)
            if metrics is None:
                self._push(item)
            else:
                self.finished(item, metrics)

    def _is_done_elsewhere(self, piece: Piece) -> bool:
        """Return whether another driver's worker holds the lease of a piece, or of a chunk of it."""
        return any(name == piece.lease or name.startswith(f"{piece.lease}~") for name in self._leases)

    # The remaining time

    def _expected_trainings(self) -> float:
        """Return the cost of work that waits for a search: its next candidates and its column's trainings."""
        return sum(training_cost(cell.config) for cell in self._waiting) + self.searches.expected_cost()

    def _expected_afterwards(self) -> tuple[list[Evaluation], float]:
        """Return the attacks that follow a training and the cost of its diagnoses, equal for all cells of a study."""
        cell = next(iter(self.cells.values()), None)
        if cell is None:
            return [], 0.0
        passes = diagnosis_passes(cell.config, self.study.evaluation.images)
        return evaluations_of(self.study, cell), passes * len(diagnoses_of(self.study, cell))
