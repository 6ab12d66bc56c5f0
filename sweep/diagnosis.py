"""Margins, gradient norms and the rest of a trial's diagnostics, computed once and kept in the store."""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np

from sweep.checkpoints import data_set, trial_model
from sweep.store import FORMAT, Store, open_store


def diagnostics_path(trial: str, checkpoint: str) -> str:
    return f"diagnostics/{trial[:16]}/{checkpoint}.json"


def is_diagnosed(store: Store, trial: str, checkpoint: str) -> bool:
    return store.exists(diagnostics_path(trial, checkpoint))


def diagnose_trial(
    store_uri: str,
    trial: str,
    checkpoint: str,
    data_dir: str | None,
    *,
    epsilon: float | None = None,
    images: int | None = None,
    device: str = "cpu",
    commit: str | None = None,
) -> dict[str, Any]:
    """The stored diagnostics of a checkpoint, computed if absent; `images` limits both parts of the data."""
    from sweep.worker import device_name, versions
    from trainers.diagnostics import diagnose

    store = open_store(store_uri)
    path = diagnostics_path(trial, checkpoint)
    if store.exists(path):
        return store.read_json(path)
    started = time.perf_counter()
    model, config = trial_model(store_uri, trial, checkpoint, device)
    data = data_set(config.dataset, data_dir).limited(config.train_images, config.test_images)
    data = data.held_out(config.selection.validation, config.selection.validation_from)
    arrays, summary = diagnose(model, config, data, epsilon=epsilon, images=images, device=device)
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    store.write(path.replace(".json", ".npz"), packed.getvalue())
    # The record comes last: a reader that finds it finds the arrays too.
    record = {
        "kind": "diagnostics",
        "format": FORMAT,
        "trial": trial,
        "checkpoint": checkpoint,
        "summary": summary,
        "arrays": f"{checkpoint}.npz",
        "versions": versions(),
        "commit": commit,
        "device": device_name(),
        "wall_seconds": time.perf_counter() - started,
    }
    store.write_json(path, record)
    return record
