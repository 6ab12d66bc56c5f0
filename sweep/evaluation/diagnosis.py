"""Diagnostics of a trial, computed once and stored as a record and arrays with one value per image."""

from __future__ import annotations

import hashlib
import io
import time

import numpy as np

from sweep.evaluation.asked import Diagnosis
from sweep.evaluation.checkpoints import trial_data, trial_model
from sweep.store.base import Store
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.trials.provenance import made_here
from trainers.measures.diagnostics import diagnose
from trainers.values import as_float


def stored_diagnosis(store: Store, wanted: Diagnosis) -> DiagnosticsRecord | None:
    """Return the stored record if it and its arrays are intact, otherwise None."""
    record = store.usable(DiagnosticsRecord, wanted.record)
    if record is None or not store.exists(record.arrays_path):
        return None
    content = store.read(record.arrays_path)
    return record if record.arrays_sha256 in (None, hashlib.sha256(content).hexdigest()) else None


def diagnose_trial(
    store: Store, wanted: Diagnosis, data_dir: str | None, *, device: str = "cpu", commit: str | None = None
) -> DiagnosticsRecord:
    """Return the stored diagnostics; compute and store them if they are missing or broken."""
    known = stored_diagnosis(store, wanted)
    if known is not None:
        return known
    started = time.perf_counter()
    model, trial = trial_model(store.uri, wanted.trial, wanted.checkpoint, device)
    config, whole = trial.config, trial_data(trial, data_dir)
    data = whole.limited(config.train_images, config.test_images)
    data = data.held_out(config.selection.validation, config.selection.validation_from)
    radius = as_float(wanted.epsilon)
    arrays, summary = diagnose(
        model, config, data, epsilon=radius, norm=wanted.norm, images=wanted.images, device=device
    )
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    record = DiagnosticsRecord(
        trial=wanted.trial,
        checkpoint=wanted.checkpoint,
        epsilon=wanted.epsilon,
        norm=wanted.norm,
        images=wanted.images,
        summary=summary,
        arrays=f"{wanted.record.rpartition('/')[2].removesuffix('.json')}.npz",
        arrays_sha256=hashlib.sha256(packed.getvalue()).hexdigest(),
        commit=commit,
        wall_seconds=time.perf_counter() - started,
        **made_here({config.dataset: whole.sha256}, model.evaluated_in),
    )
    # The record is written last, so that its arrays always exist.
    store.write(record.arrays_path, packed.getvalue())
    store.write_record(record)
    return record
