"""A study's trainings on a running Ray, with the product's own searcher, store and leases."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.callback import Callback

from sweep.cluster.resources import choose, resources_by_piece, slots
from sweep.engine.searcher import StudySearcher, Watch, living_nodes
from sweep.engine.supervisor import Supervisor
from sweep.engine.tuner import Trainer, fit
from sweep.store.base import Store
from sweep.store.opening import open_store
from sweep.work.pieces import Setting
from sweep.work.queue import Queue
from sweep.work.trainable import trainable


class FirstStart(Callback):
    """A callback that records when the first trial starts, so that process starts and imports are not counted."""

    def __init__(self) -> None:
        self.started = 0.0

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.started = self.started or time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self.started


class Trainings(Queue):
    """A queue without attacks, which are not part of the measurement."""

    def _add_attacks(self, cell: Any, stored: Any) -> None:
        pass


@dataclass
class Swept:
    """A finished run: its store, its wall seconds from the first trial's start, and the share of busy device time."""

    store: Store
    seconds: float
    busy: float
    results: tune.ResultGrid


def swept(study: Any, folder: Path, function: Trainer = trainable) -> Swept:
    store = open_store(folder / "store")
    resources = choose(study)
    queue = Trainings(study, store, command="benchmark")
    searcher = StudySearcher(Supervisor(queue, 0, living_nodes()), resources, resources_by_piece(study, resources))
    watch, first = Watch(searcher, 3600.0, lambda: None), FirstStart()
    scratch = folder / "tune"
    scratch.mkdir(parents=True)
    results = fit(searcher, Setting(store.uri, str(folder), study.name), watch, [first], scratch, function)
    seconds = first.seconds()
    queue.close()
    assert queue.complete and not queue.failed, queue.failed
    return Swept(store, seconds, watch.device_use(slots(resources)) or 0.0, results)
