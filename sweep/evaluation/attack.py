"""The loop over an attack's phases, which computes every evaluation in one process or in several that share it.

The images that reach a phase are divided into chunks. A process claims a chunk, computes its missing batches and saves
each of them. The next phase starts only after all chunks of a phase are saved, and is divided from the survivors of all
images, so the verdicts do not depend on the number of processes. A kill loses the current batch; with a remote store it
loses at most a minute of work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sweep.evaluation.asked import Evaluation
from sweep.evaluation.progress import EvaluationProgress, as_text
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.leases import take
from sweep.store.records.evaluation import EvaluationRecord, ShardRecord
from sweep.store.verdicts import pack, pack_distances
from sweep.trials.provenance import made_here
from trainers.attack import Verdicts
from trainers.attacks.perturbation.autoattack import joined_warnings
from trainers.attacks.scoring.scorer import evaluate_phase

SAVE_SECONDS = 60.0  # minimum seconds of computation between saves to a remote store, except at the end of a chunk
CHUNKS = 16  # maximum per phase, unless the study asks for several shards
CHUNK_PASSES = 1e6  # minimum image passes per chunk; less is not worth a lease

Claim = Callable[[str], AbstractContextManager[bool]]
Parts = tuple[Any, torch.Tensor, torch.Tensor]  # the model, the test images and their labels
Chunk = tuple[int, int]  # the first and the last + 1, as positions among the images that reach a phase


@dataclass(frozen=True)
class BatchDone:
    """Progress of a phase: `images` of `count` are saved, and `free` of its other chunks are incomplete."""

    phase: str
    images: int
    count: int
    free: int


def attack(
    store: Store,
    evaluation: Evaluation,
    parts: Parts,
    *,
    claim: Claim = lambda chunk: nullcontext(True),
    on_batch: Callable[[BatchDone], None] = lambda done: None,
    device: str = "cpu",
    commit: str | None = None,
    data: Mapping[str, str] | None = None,
) -> EvaluationRecord | None:
    """Compute the missing parts of an evaluation and write its record.

    Args:
        claim: Returns a context manager for a chunk's name, which yields whether this process may compute the chunk.
            The empty name claims the whole evaluation.
        on_batch: Called after every batch.
        data: SHA-256 of the data set that the images come from, by its name.

    Returns:
        The record, or None while other processes still compute chunks.
    """
    is_whole = is_one_chunk(evaluation)
    with claim("") if is_whole else nullcontext(True) as is_mine:
        if not is_mine:
            return None
        record = _concluded(store, evaluation)
        if record is not None:
            return record
        progress = EvaluationProgress(store, evaluation)
        made = made_here(data, getattr(parts[0], "evaluated_in", None))
        computation = _Computation(store, evaluation, progress, parts, on_batch, device, commit, made)
        for phase in evaluation.attack.phases:
            for chunk in _chunks(progress, phase):
                if not progress.missing(phase, *chunk):
                    continue
                with nullcontext(True) if is_whole else claim(f"~{phase}-{chunk[0]}") as is_mine:
                    if not is_mine:
                        continue
                    record = _concluded(store, evaluation)  # other processes may have finished it meanwhile
                    if record is not None:
                        return record
                    progress.look()
                    computation.compute(phase, chunk)
            progress.look()
            if progress.missing(phase):
                return _concluded(store, evaluation)
            progress.finish(phase)
        with nullcontext(True) if is_whole else claim("~record") as is_mine:
            return conclude(store, evaluation, progress) if is_mine else None


def leased(store: Store, evaluation: Evaluation) -> Claim:
    """Return a `claim` that takes leases, for processes that share a store."""

    @contextmanager
    def claim(chunk: str) -> Iterator[bool]:
        lease = take(store, f"{evaluation.lease}{chunk}")
        with lease or nullcontext():
            yield lease is not None

    return claim


def conclude(store: Store, evaluation: Evaluation, progress: EvaluationProgress) -> EvaluationRecord:
    """Write the record of an evaluation with complete phases, unless it exists, then delete its shards."""
    concluded = _concluded(store, evaluation)
    if concluded is not None:
        return concluded
    record, proof = progress.record()
    if proof is not None:  # written first, so that the record never names a missing file
        store.write(record.counterexamples_path, proof)
    store.write_record(record)
    _delete_shards(store, evaluation)
    return record


def is_one_chunk(evaluation: Evaluation) -> bool:
    """Return whether an evaluation is too small to be shared."""
    images = evaluation.images
    return all(chunk_images(evaluation, phase, images) >= images for phase in evaluation.attack.phases)


def chunk_images(evaluation: Evaluation, phase: str, count: int) -> int:
    """Return the number of images per chunk, given that `count` images reach the phase.

    A chunk is made of whole batches, enough of them to be worth a lease unless the study asks for several shards. The
    result is the same in all processes.
    """
    batch = evaluation.piece
    batches = math.ceil(count / batch)
    if evaluation.shards > 1:
        return batch * math.ceil(batches / evaluation.shards)
    worthwhile = CHUNK_PASSES / max(evaluation.attack.passes(phase), 1.0)
    return batch * max(math.ceil(batches / CHUNKS), math.ceil(worthwhile / batch))


def _chunks(progress: EvaluationProgress, phase: str) -> list[Chunk]:
    count = int(progress.alive.sum())
    length = chunk_images(progress.evaluation, phase, count)
    return [(first, min(first + length, count)) for first in range(0, count, length or 1)]


def _concluded(store: Store, evaluation: Evaluation) -> EvaluationRecord | None:
    """Return the record of an evaluation if it exists, and delete any shards that a killed process left behind."""
    record = store.usable(EvaluationRecord, evaluation.record)
    if record is not None:
        _delete_shards(store, evaluation)
    return record


def _delete_shards(store: Store, evaluation: Evaluation) -> None:
    for path in store.paths(evaluation.folder):
        if layout.kind_at(path) == ShardRecord.kind:
            store.delete(path)


@dataclass(frozen=True)
class _Computation:
    """The part of an evaluation that this process computes."""

    store: Store
    evaluation: Evaluation
    progress: EvaluationProgress
    parts: Parts
    on_batch: Callable[[BatchDone], None]
    device: str
    commit: str | None
    made: Mapping[str, Any]

    def compute(self, phase: str, chunk: Chunk) -> None:
        """Compute and save the missing images of a chunk, batch by batch."""
        evaluation, progress = self.evaluation, self.progress
        survivors = torch.from_numpy(progress.survivors())
        unsaved = Unsaved(self.store, evaluation, phase, self.commit, self.made)
        for first, last in progress.missing(phase, *chunk):
            for start in range(first, last, evaluation.piece):
                where = survivors[start : min(start + evaluation.piece, last)]
                started = time.perf_counter()
                verdicts = self._verdicts(phase, where, is_first=start == 0)
                unsaved.add(start, start + len(where), verdicts, time.perf_counter() - started)
                progress.add(unsaved.taken())
                self.on_batch(self._batch_done(phase, chunk))
            unsaved.save()
            progress.add(unsaved.taken())

    def _verdicts(self, phase: str, where: torch.Tensor, *, is_first: bool) -> Verdicts:
        """Attack one batch; `where` holds positions among the images of the evaluation."""
        evaluation, (model, images, labels) = self.evaluation, self.parts
        indices = where + evaluation.images_used.start
        verdicts = evaluate_phase(
            model,
            images[indices],
            labels[indices],
            evaluation.attack,
            phase,
            indices=indices,
            device=self.device,
            batch_size=evaluation.batch_size,
            checks=is_first and phase == "clean",
            counterexamples=evaluation.counterexamples,
        )
        if verdicts.counterexamples is None:
            return verdicts
        positions = where.numpy()[verdicts.counterexamples.indices]
        return replace(verdicts, counterexamples=verdicts.counterexamples.at(positions))

    def _batch_done(self, phase: str, chunk: Chunk) -> BatchDone:
        count = int(self.progress.alive.sum())
        gaps = self.progress.missing(phase)
        others = [other for other in _chunks(self.progress, phase) if other != chunk]
        free = sum(any(first < other[1] and last > other[0] for first, last in gaps) for other in others)
        return BatchDone(phase, count - sum(last - first for first, last in gaps), count, free)


class Unsaved:
    """Buffer for the verdicts of consecutive batches, which are saved as one shard.

    A local store saves every batch. A remote store saves about once a minute, because writing a small file takes it as
    long as a GPU needs for many images.
    """

    def __init__(
        self, store: Store, evaluation: Evaluation, phase: str, commit: str | None, made: Mapping[str, Any]
    ) -> None:
        self.store, self.evaluation, self.phase, self.commit, self.made = store, evaluation, phase, commit, made
        self.saved: list[ShardRecord] = []
        self.verdicts: list[Verdicts] = []
        self.first = self.last = 0
        self.seconds = 0.0

    def add(self, first: int, last: int, verdicts: Verdicts, seconds: float) -> None:
        if not self.verdicts:
            self.first = first
        self.verdicts.append(verdicts)
        self.last, self.seconds = last, self.seconds + seconds
        if self.store.local("") is not None or self.seconds > SAVE_SECONDS:
            self.save()

    def taken(self) -> list[ShardRecord]:
        """Return the shards that were saved since the last call."""
        saved, self.saved = self.saved, []
        return saved

    def save(self) -> None:
        if not self.verdicts:
            return
        clean = [batch.clean.numpy() for batch in self.verdicts if batch.clean is not None]
        distances = [batch.distances.numpy() for batch in self.verdicts if batch.distances is not None]
        shard = ShardRecord(
            folder=self.evaluation.folder,
            first=self.first,
            last=self.last,
            phase=self.phase,
            correct=pack(np.concatenate([batch.correct.numpy() for batch in self.verdicts])),
            clean=pack(np.concatenate(clean)) if clean else None,
            warnings=tuple(joined_warnings([text for batch in self.verdicts for text in batch.warnings])),
            seconds=self.seconds,
            counterexamples=as_text([batch.counterexamples for batch in self.verdicts]),
            distances=pack_distances(np.concatenate(distances)) if distances else None,
            commit=self.commit,
            **self.made,
        )
        self.store.write_record(shard)
        self.saved.append(shard)
        self.verdicts, self.seconds = [], 0.0
