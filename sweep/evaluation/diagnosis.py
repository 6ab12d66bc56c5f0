"""Margins, gradient norms and the rest of a trial's diagnostics, computed once and kept in the store."""

from __future__ import annotations

import contextlib
import io
import time
from typing import Any

import numpy as np

from sweep.evaluation.checkpoints import data_set, trial_model
from sweep.store.base import FORMAT, BrokenRecord, open_store
from trainers.values import as_float


def diagnostics_path(trial: str, checkpoint: str, epsilon: str, images: int | None) -> str:
    """The settings are part of the name: studies that share a trial and ask for different ones both keep theirs."""
    settings = f"{epsilon.replace('/', '_')}-{'all' if images is None else images}"
    return f"diagnostics/{trial[:16]}/{checkpoint}-{settings}.json"


def diagnose_trial(
    store_uri: str,
    trial: str,
    checkpoint: str,
    data_dir: str | None,
    *,
    epsilon: str,
    images: int | None = None,
    device: str = "cpu",
    commit: str | None = None,
) -> dict[str, Any]:
    """The stored diagnostics of a checkpoint under these settings, computed if absent or broken.

    `images` takes only the first n of the training and of the test images.
    """
    from sweep.cluster.worker import device_name, versions
    from trainers.diagnostics import diagnose

    store = open_store(store_uri)
    path = diagnostics_path(trial, checkpoint, epsilon, images)
    with contextlib.suppress(FileNotFoundError, BrokenRecord):
        return store.read_json(path)
    started = time.perf_counter()
    model, config = trial_model(store_uri, trial, checkpoint, device)
    data = data_set(config.dataset, data_dir).limited(config.train_images, config.test_images)
    data = data.held_out(config.selection.validation, config.selection.validation_from)
    arrays, summary = diagnose(model, config, data, epsilon=as_float(epsilon), images=images, device=device)
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    arrays_path = f"{path.removesuffix('.json')}.npz"
    store.write(arrays_path, packed.getvalue())
    # The record comes last: a reader that finds it finds the arrays too.
    record = {
        "kind": "diagnostics",
        "format": FORMAT,
        "trial": trial,
        "checkpoint": checkpoint,
        "epsilon": epsilon,
        "images": images,
        "summary": summary,
        "arrays": arrays_path.rpartition("/")[2],
        "versions": versions(),
        "commit": commit,
        "device": device_name(),
        "wall_seconds": time.perf_counter() - started,
    }
    store.write_json(path, record)
    return record
