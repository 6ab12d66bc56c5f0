"""Evaluation as small pieces of work over (checkpoint, attack, phase, range of images), kept in the store.

`open_items` says what can be computed now, `run_item` does one of them in whatever process, and when nothing is left
`conclude` writes the record. AutoAttack's phases follow one another: the survivors of all images are packed into
batches before the next phase is cut into items, so the verdicts do not depend on the number of shards. An item saves
after every batch, to a remote store every minute; a kill loses what was not saved of one component.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sweep.evaluation.asked import Evaluation
from sweep.evaluation.progress import EvaluationProgress, as_text
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.records.evaluation import EvaluationRecord, ShardRecord
from sweep.store.verdicts import pack, pack_distances
from sweep.trials.provenance import made_here
from trainers.attack import Verdicts
from trainers.evaluate import evaluate_phase
from trainers.perturbation.autoattack import joined_warnings

SAVE_SECONDS = 60.0  # a remote store gets verdicts at most this often, and at the end of an item


@dataclass(frozen=True)
class Item:
    """A range of the images that reach a phase: positions first … last-1 among the survivors of the phase before."""

    evaluation: Evaluation
    phase: str
    first: int
    last: int
    alive: str = (
        ""  # the images that reach the phase, packed; whoever computes the item need not read the phases before
    )


def is_finished(store: Store, evaluation: Evaluation) -> bool:
    return store.usable(EvaluationRecord, evaluation.record) is not None


def open_items(
    store: Store, evaluation: Evaluation, *, shards: int | None = None, progress: EvaluationProgress | None = None
) -> list[Item]:
    """What can be computed now, by any processes; nothing when all phases are complete, or the record is there.

    `shards` cuts it into other numbers of items than the evaluation says, which moves no verdict. Who holds the
    evaluation may keep its `progress`, and tells it what has come since.
    """
    if progress is None:
        if is_finished(store, evaluation):
            return []
        progress = EvaluationProgress(store, evaluation)
    for phase in evaluation.attack.phases:
        missing = [] if phase in progress.after else progress.missing(phase, shards)
        if missing:
            alive = pack(progress.alive)
            return [Item(evaluation, phase, first, last, alive) for first, last in missing]
        progress.finish(phase)
    return []


def conclude(store: Store, evaluation: Evaluation, progress: EvaluationProgress | None = None) -> EvaluationRecord:
    """The record, written from complete phases unless it is there; what it was made of goes afterwards."""
    if progress is not None or not is_finished(store, evaluation):
        progress = progress or EvaluationProgress(store, evaluation)
        for phase in evaluation.attack.phases:
            progress.finish(phase)
        record, proof = progress.record()
        if proof is not None:  # first, so that whoever finds the record finds what it names
            store.write(record.counterexamples_path, proof)
        store.write_record(record)
    else:
        record = store.record(EvaluationRecord, evaluation.record)
    for path in store.paths(evaluation.folder) if progress is None else progress.paths:
        if layout.kind_at(path) == ShardRecord.kind:
            store.delete(path)
    return record


def missing_images(store: Store, item: Item) -> int:
    """How many images of an item are not saved yet, from a listing alone."""
    left = set(range(item.first, item.last))
    for path in store.paths(item.evaluation.folder):
        name = layout.shard_name(path)
        if name and name.phase == item.phase:
            left -= set(range(name.first, name.last))
    return len(left)


def run_item(
    store: Store,
    item: Item,
    model: Any,
    images: Any,
    labels: Any,
    *,
    device: str = "cpu",
    commit: str | None = None,
    data: Mapping[str, str] | None = None,
    saved: list[ShardRecord] | None = None,
) -> Iterator[int]:
    """Computes an item piece by piece and saves each; yields how many images of the item are done.

    `images` and `labels` are the test set's, `data` the SHA-256 of what they come from. Safe to repeat: what is saved
    is not computed again. `saved` gets all shards of the item's phase that are stored, those that were there included.
    """
    evaluation, attack = item.evaluation, item.evaluation.attack
    images, labels = images[evaluation.images_used], labels[evaluation.images_used]
    progress = EvaluationProgress(store, evaluation)
    if item.alive:
        progress.reached_by(item.alive)
    else:
        for phase in attack.phases[: attack.phases.index(item.phase)]:
            progress.finish(phase)
    survivors = torch.from_numpy(progress.survivors())
    saved = [] if saved is None else saved
    saved += progress.shards(item.phase)
    made = made_here(data, getattr(model, "evaluated_in", None))
    unsaved = Unsaved(store, evaluation, item.phase, commit, made, saved)
    for first, last in progress.missing(item.phase):
        for start in range(max(first, item.first), min(last, item.last), evaluation.piece):
            end = min(start + evaluation.piece, last, item.last)
            where = survivors[start:end]
            started = time.perf_counter()
            found = evaluate_phase(
                model,
                images[where],
                labels[where],
                attack,
                item.phase,
                indices=where + evaluation.images_used.start,
                device=device,
                batch_size=evaluation.batch_size,
                checks=start == 0 and item.phase == "clean",
                counterexamples=evaluation.counterexamples,
            )
            if found.counterexamples is not None:
                places = where.numpy()[found.counterexamples.indices]
                found = replace(found, counterexamples=found.counterexamples.at(places))
            unsaved.add(start, end, found, time.perf_counter() - started)
            yield end - item.first
        unsaved.save()


class Unsaved:
    """Verdicts of consecutive batches that make one shard: in a folder each batch, elsewhere those of a minute.

    A remote store takes as long for one small file as a GPU for many images.
    """

    def __init__(
        self,
        store: Store,
        evaluation: Evaluation,
        phase: str,
        commit: str | None,
        made: Mapping[str, Any],
        saved: list[ShardRecord],
    ) -> None:
        self.store, self.evaluation, self.phase, self.commit, self.made = store, evaluation, phase, commit, made
        self.saved = saved
        self.found: list[Verdicts] = []
        self.first = self.last = 0
        self.seconds = 0.0

    def add(self, first: int, last: int, found: Verdicts, seconds: float) -> None:
        if not self.found:
            self.first = first
        self.found.append(found)
        self.last, self.seconds = last, self.seconds + seconds
        if self.store.local("") is not None or self.seconds > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        if not self.found:
            return
        clean = [one.clean.numpy() for one in self.found if one.clean is not None]
        distances = [one.distances.numpy() for one in self.found if one.distances is not None]
        shard = ShardRecord(
            folder=self.evaluation.folder,
            first=self.first,
            last=self.last,
            phase=self.phase,
            correct=pack(np.concatenate([one.correct.numpy() for one in self.found])),
            clean=pack(np.concatenate(clean)) if clean else None,
            warnings=tuple(joined_warnings([text for one in self.found for text in one.warnings])),
            seconds=self.seconds,
            counterexamples=as_text([one.counterexamples for one in self.found]),
            distances=pack_distances(np.concatenate(distances)) if distances else None,
            commit=self.commit,
            **self.made,
        )
        self.store.write_record(shard)
        self.saved.append(shard)
        self.found, self.seconds = [], 0.0
