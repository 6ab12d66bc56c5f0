"""What a worker would ask of the store for a task, and leave there, without computing anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.scale.store import MemoryStore
from sweep.evaluation.items import SAVE_SECONDS
from sweep.store import layout
from sweep.store.records.evaluation import ShardRecord
from sweep.store.records.trial import Checkpoint, TrialRecord
from sweep.store.verdicts import pack
from sweep.work.tasks import EvaluationPiece, Task

PASS_SECONDS = 2 * 5.7e-3 / 128  # an A100's, for PreActResNet-18: forward and backward of one image, computed


def seconds_of(task: Task) -> float:
    return max(1.0, task.cost * PASS_SECONDS)


def left_by(store: MemoryStore, task: Task, seconds: float, is_loaded: bool) -> list[Any]:
    """The records that travel to the driver; `is_loaded`: the process has the trial's weights."""
    if isinstance(task, EvaluationPiece):
        return _evaluated(store, task, seconds, is_loaded)
    folder = layout.trial_folder(task.trial)
    store.paths(folder)  # is there a state to go on from
    kept = {"last": Checkpoint(epoch=0, sha256="0" * 64), "best_test": Checkpoint(epoch=0, sha256="0" * 64)}
    record = TrialRecord(trial=task.trial, config=task.config, status="done", checkpoints=kept)
    for name in kept:
        store.leave(layout.weights(task.trial, name))
    store.write_record(record)
    store.paths(folder)
    for name in (layout.RESUME, layout.PROGRESS):
        store.delete(layout.trial_file(task.trial, name))
    return [record]


def _evaluated(store: MemoryStore, task: EvaluationPiece, seconds: float, is_loaded: bool) -> list[Any]:
    item, evaluation = task.item, task.item.evaluation
    if not is_loaded:
        store.read(layout.trial_record(task.trial))
        store.read(layout.weights(task.trial, evaluation.checkpoint))
    store.paths(evaluation.folder)  # is something of it saved
    shards = max(1, int(seconds // SAVE_SECONDS))
    length = evaluation.piece * max(1, -(-(item.last - item.first) // evaluation.piece // shards))
    found = []
    for first in range(item.first, item.last, length):
        last = min(first + length, item.last)
        survives = np.ones(last - first, dtype=bool)
        correct = np.arange(last - first) % 2 == 0 if item.phase == "apgd-ce" else survives
        shard = ShardRecord(
            folder=evaluation.folder,
            first=first,
            last=last,
            phase=item.phase,
            correct=pack(correct),
            clean=pack(correct) if item.phase in ("", "clean") else None,
        )
        store.write_record(shard)
        found.append(shard)
    return found
