"""A training in a worker: from its last saved epoch to its record or, for a search's candidate, to its last rung."""

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
from sweep.trials.provenance import device_name, made_here
from trainers.assembly import data_sha256
from trainers.loop.train import train

if TYPE_CHECKING:
    from sweep.work.pieces import Candidate, Training, Workplace

PUSH_SECONDS = 60.0  # minimum interval between uploads of the resume state to a remote store
REPORT_SECONDS = 1.0  # minimum interval between reports: waiting for the driver can take longer than a small epoch


class Pruned(Exception):
    """Raised out of the training loop at a rung."""

    def __init__(self, curve: list[CurveRow]) -> None:
        super().__init__()
        self.curve = curve


def train_candidate(piece: Candidate, place: Workplace) -> TrialRecord | CandidateRecord:
    """Train a search's candidate. Return its stored record, a CandidateRecord if it was pruned."""
    try:
        return train_trial(piece, place, piece.cut_offs, piece.metric)
    except Pruned as pruned:
        record = CandidateRecord(search=piece.search, trial=piece.trial, curve=tuple(pruned.curve))
        place.store.write_record(record)
        forget(place.store, piece.trial)
        return record


def forget(store: Store, trial: str) -> None:
    """Delete the files of a pruned training."""
    for path in store.paths(layout.trial_folder(trial)):
        if layout.is_trial_file(path):
            store.delete(path)


def train_trial(
    piece: Training, place: Workplace, cut_offs: Mapping[int, float] | None = None, metric: str = ""
) -> TrialRecord:
    """Train to the end and write the record last. Raise Pruned at a rung where the metric is below its cut-off."""
    store, folder, needed = place.store, place.folder, cut_offs or {}
    curve: list[CurveRow] = []
    data = data_set(piece.config.dataset, place.setting.data_dir)
    trained_on = data_sha256(data, piece.config.wrappers.values(), place.setting.data_dir)
    started, pushed = time.time(), time.monotonic()
    unreported: list[CurveRow] = []
    reported, is_remote = -REPORT_SECONDS, store.local("") is None

    def report() -> None:
        nonlocal reported
        if not is_remote:
            _write_progress(store, piece, len(curve), started, trained_on)
        if unreported:
            *earlier, last = [_numbers(row) for row in unreported]
            place.report({**last, "earlier": earlier} if earlier else last)
            unreported.clear()
        reported = time.monotonic()

    def go_on() -> None:
        is_pruned = judged([row.get(metric) for row in curve], needed)[1]
        if is_pruned or time.monotonic() - reported >= REPORT_SECONDS:
            report()
        if is_pruned:
            raise Pruned(curve)

    def after_resume(rows: list[CurveRow]) -> None:
        curve.extend(rows)
        _write_progress(store, piece, len(curve), started, trained_on)
        go_on()

    def after_epoch(row: CurveRow) -> None:
        nonlocal pushed
        curve.append(row)
        if is_remote and time.monotonic() - pushed > PUSH_SECONDS:
            push_state(store, piece.trial, folder)
            _write_progress(store, piece, len(curve), started, trained_on)
            pushed = time.monotonic()
        unreported.append(row)
        go_on()

    outcome = train(
        piece.config,
        folder=folder,
        data_dir=place.setting.data_dir,
        device=place.device,
        device_name=device_name(),
        on_epoch=after_epoch,
        on_resume=after_resume,
        data=data,
    )
    report()
    _push(store, piece.trial, folder, without=layout.RESUME)
    record = _record(piece, place, outcome, trained_on, time.time() - started)
    store.write_record(record)
    _drop(store, piece.trial, {layout.RESUME, layout.PROGRESS}, folder)
    return record


def _numbers(row: CurveRow) -> dict[str, int | float]:
    return {key: value for key, value in row.items() if isinstance(value, int | float)}


def _record(
    piece: Training, place: Workplace, outcome: Mapping[str, Any], data: Mapping[str, str], seconds: float
) -> TrialRecord:
    checkpoints = {name: Checkpoint.model_validate(kept) for name, kept in outcome["checkpoints"].items()}
    return TrialRecord(
        trial=piece.trial,
        config=piece.config,
        numerics=NUMERICS_VERSION,
        status=outcome["status"],
        reason=outcome["reason"],
        curve=tuple(outcome["curve"]),
        checkpoints=checkpoints,
        metrics=_metrics(outcome["curve"], checkpoints),
        steps=outcome["steps"],
        wall_seconds=max(seconds, outcome["train_seconds"]),
        commit=place.setting.commit,
        command=piece.retry_command(place.setting.command),
        **made_here(data, piece.config.recipe.precision) | {"devices": tuple(outcome["devices"])},
    )


def _metrics(curve: list[CurveRow], checkpoints: Mapping[str, Checkpoint]) -> dict[str, float]:
    """Return the accuracies of each kept checkpoint, as measured in the training loop."""
    return {
        f"{name}_{key}": value
        for name, kept in checkpoints.items()
        for key, value in curve[kept.epoch].items()
        if key.endswith("_accuracy") and value is not None
    }


def _write_progress(store: Store, piece: Training, epoch: int, started: float, data: dict[str, str]) -> None:
    note = Progress(
        trial=piece.trial,
        label=piece.label,
        seed=piece.config.seed,
        epoch=epoch,
        epochs=piece.epochs,
        started=started,
        updated=time.time(),
        host=socket.gethostname(),
        pid=os.getpid(),
        data=data,
    )
    store.write(layout.trial_file(piece.trial, layout.PROGRESS), note.model_dump_json().encode(), durable=False)


def push_state(store: Store, trial: str, folder: Path) -> None:
    """Upload the resume state to a remote store, in an order that survives a kill at any point.

    The weights come first, then the state that names them. Weights that it no longer names are deleted last.
    """
    _push(store, trial, folder, without=layout.RESUME)
    store.push_file(folder / layout.RESUME, layout.trial_file(trial, layout.RESUME))
    _drop(store, trial, set(), folder)


def _push(store: Store, trial: str, folder: Path, without: str) -> None:
    """Copy the trial's files to a remote store. In a folder store, they are already in place."""
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
