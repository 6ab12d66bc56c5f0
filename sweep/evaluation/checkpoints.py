"""A trial's checkpoint as a model that can be attacked, with the images of its data set."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

from safetensors.torch import load

from sweep.errors import UserError
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.opening import open_store
from trainers import assembly, data
from trainers.config import TrialConfig
from trainers.evaluate import ready


@functools.lru_cache(maxsize=2)
def trial_model(store_uri: str, trial: str, checkpoint: str, device: str) -> tuple[Any, TrialConfig]:
    """The model of a trial's checkpoint, kept for the next piece of work of the same process."""
    store = open_store(store_uri)
    record = store.trial_record(trial)
    if record is None:
        raise UserError(f"trial {layout.short(trial)} has no record in {store.uri}; train it first")
    path = layout.weights(trial, checkpoint)
    if checkpoint not in record.checkpoints or not store.exists(path):
        stored = ", ".join(record.checkpoints) or "none"
        raise UserError(f"trial {layout.short(trial)} has no checkpoint {checkpoint!r}; stored: {stored}")
    model = assembly.build_model(record.config)
    model.load_state_dict(_checked_weights(store, path, record.checkpoints[checkpoint].sha256))
    return ready(model, device), record.config


def _checked_weights(store: Store, path: str, expected: str) -> dict[str, Any]:
    """The tensors of a trial's checkpoint, if the file is the one that its record describes."""
    content = store.read(path)
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise UserError(
            f"{store.uri}/{path} is damaged: its record expects sha256 {expected[:16]}…, the file has {found[:16]}…; "
            f"to train it again delete the folder {path.rpartition('/')[0]} of the store and run the study"
        )
    return dict(load(content))


def trial_parts(store_uri: str, trial: str, checkpoint: str, data_dir: str | None, device: str) -> tuple[Any, Any, Any]:
    """The model, the test images and their labels."""
    model, config = trial_model(store_uri, trial, checkpoint, device)
    bundle = data_set(config.dataset, data_dir).limited(config.train_images, config.test_images)
    return model, bundle.test_images, bundle.test_labels


@functools.lru_cache(maxsize=1)
def data_set(name: str, data_dir: str | None) -> Any:
    try:
        return data.load(name, data_dir, download=False)
    except data.DataMissing as fault:
        raise UserError(str(fault)) from None
