"""A training in a worker: from its last saved epoch to its record, or as a search's candidate to its last rung."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.evaluation.checkpoints import data_set
from sweep.search.pruning import judged
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.numerics import NUMERICS_VERSION
from sweep.store.records.record import CurveRow
from sweep.store.records.search import CandidateRecord
from sweep.store.records.trial import Checkpoint, Progress, TrialRecord
from sweep.trials.provenance import device, device_name, made_here
from trainers.assembly import data_sha256
from trainers.train import train

if TYPE_CHECKING:
    from sweep.work.tasks import CandidateTraining, Training, Workplace

PUSH_SECONDS = 60.0  # a remote store gets the resume state at most this often
TELL_SECONDS = 1.0  # the driver hears of epochs at most this often: to wait for it can take longer than a small epoch


class Pruned(Exception):
    """Raised out of the training loop at a rung."""

    def __init__(self, curve: list[CurveRow]) -> None:
        super().__init__()
        self.curve = curve


def train_candidate(task: CandidateTraining, place: Workplace) -> str:
    try:
        return train_trial(task, place, task.cut_offs, task.metric)
    except Pruned as pruned:
        record = CandidateRecord(search=task.search, trial=task.trial, curve=tuple(pruned.curve))
        place.store.write_record(record)
        place.found.append(record)
        forget(place.store, task.trial)
        return "pruned"


def forget(store: Store, trial: str) -> None:
    """Delete what a pruned training leaves."""
    for path in store.paths(layout.trial_folder(trial)):
        if layout.is_trial_file(path):
            store.delete(path)


def train_trial(task: Training, place: Workplace, cut_offs: Mapping[int, float] | None = None, metric: str = "") -> str:
    """Train to the end, the record last; raises Pruned at a rung where the metric's curve is below the cut-off."""
    store, folder, needed = place.store, place.folder, cut_offs or {}
    curve: list[CurveRow] = []
    data = data_set(task.config.dataset, place.setting.data_dir)
    trained_on = data_sha256(data, task.config.wrappers.values(), place.setting.data_dir)
    started, pushed = time.time(), time.monotonic()
    untold: list[CurveRow] = []
    told, is_remote = -TELL_SECONDS, store.local("") is None

    def tell() -> None:
        nonlocal told
        if not is_remote:
            _write_progress(store, task, len(curve), started, trained_on)
        if untold:
            *earlier, last = [_numbers(row) for row in untold]
            place.report({**last, "earlier": earlier} if earlier else last)
            untold.clear()
        told = time.monotonic()

    def go_on() -> None:
        is_pruned = judged([row.get(metric) for row in curve], needed)[1]
        if is_pruned or time.monotonic() - told >= TELL_SECONDS:
            tell()
        if is_pruned:
            raise Pruned(curve)

    def after_resume(rows: list[CurveRow]) -> None:
        curve.extend(rows)
        _write_progress(store, task, len(curve), started, trained_on)
        go_on()

    def after_epoch(row: CurveRow) -> None:
        nonlocal pushed
        curve.append(row)
        if is_remote and time.monotonic() - pushed > PUSH_SECONDS:
            push_state(store, task.trial, folder)
            _write_progress(store, task, len(curve), started, trained_on)
            pushed = time.monotonic()
        untold.append(row)
        go_on()

    outcome = train(
        task.config,
        folder=folder,
        data_dir=place.setting.data_dir,
        device=device(),
        device_name=device_name(),
        on_epoch=after_epoch,
        on_resume=after_resume,
        data=data,
    )
    tell()
    _push(store, task.trial, folder, without=layout.RESUME)
    record = _record(task, place, outcome, trained_on, time.time() - started)
    store.write_record(record)
    place.found.append(record)
    _drop(store, task.trial, {layout.RESUME, layout.PROGRESS}, folder)
    return str(outcome["status"])


def _numbers(row: CurveRow) -> dict[str, int | float]:
    return {key: value for key, value in row.items() if isinstance(value, int | float)}


def _record(
    task: Training, place: Workplace, outcome: Mapping[str, Any], data: Mapping[str, str], seconds: float
) -> TrialRecord:
    checkpoints = {name: Checkpoint.model_validate(kept) for name, kept in outcome["checkpoints"].items()}
    return TrialRecord(
        trial=task.trial,
        config=task.config,
        numerics=NUMERICS_VERSION,
        status=outcome["status"],
        reason=outcome["reason"],
        curve=tuple(outcome["curve"]),
        checkpoints=checkpoints,
        metrics=_metrics(outcome["curve"], checkpoints),
        steps=outcome["steps"],
        wall_seconds=max(seconds, outcome["train_seconds"]),
        commit=place.setting.commit,
        command=task.retry_command(place.setting.command),
        **made_here(data, task.config.recipe.precision) | {"devices": tuple(outcome["devices"])},
    )


def _metrics(curve: list[CurveRow], checkpoints: Mapping[str, Checkpoint]) -> dict[str, float]:
    """Each kept checkpoint's accuracies, as the training loop measured them."""
    return {
        f"{name}_{key}": value
        for name, kept in checkpoints.items()
        for key, value in curve[kept.epoch].items()
        if key.endswith("_accuracy") and value is not None
    }


def _write_progress(store: Store, task: Training, epoch: int, started: float, data: dict[str, str]) -> None:
    note = Progress(
        trial=task.trial,
        label=task.label,
        seed=task.config.seed,
        epoch=epoch,
        epochs=task.epochs,
        started=started,
        updated=time.time(),
        host=socket.gethostname(),
        pid=os.getpid(),
        data=data,
    )
    store.write(layout.trial_file(task.trial, layout.PROGRESS), note.model_dump_json().encode())


def push_state(store: Store, trial: str, folder: Path) -> None:
    """To a remote store, in the order in which a kill does no harm: weights, the state that names them, then what it
    no longer names is deleted."""
    _push(store, trial, folder, without=layout.RESUME)
    store.push_file(folder / layout.RESUME, layout.trial_file(trial, layout.RESUME))
    _drop(store, trial, set(), folder)


def _push(store: Store, trial: str, folder: Path, without: str) -> None:
    """Copy the trial's files into a remote store; in a folder store they are there already."""
    if store.local("") is not None:
        return
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.name != without and not file.name.startswith("."):
            store.push_file(file, layout.trial_file(trial, file.name))


def _drop(store: Store, trial: str, names: set[str], folder: Path) -> None:
    """Delete these files of a trial, and stored weights that its folder no longer has."""
    for path in store.paths(layout.trial_folder(trial)):
        name = layout.in_trial(path)[1]
        is_lost = name.endswith(layout.WEIGHTS) and layout.is_trial_file(path) and not (folder / name).exists()
        if name in names or is_lost:
            store.delete(path)
