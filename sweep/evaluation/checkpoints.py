"""Trial checkpoints, loaded as models ready to be attacked, with the images of their data sets."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

from safetensors.torch import load

from sweep.errors import UserError
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.opening import open_store
from sweep.store.records.trial import TrialRecord
from sweep.store.same_data import data_fault
from trainers import assembly, data
from trainers.attacks.scoring.scorer import ready
from trainers.data.bundle import DataBundle


@functools.lru_cache(maxsize=2)
def trial_model(store_uri: str, trial: str, checkpoint: str, device: str) -> tuple[Any, TrialRecord]:
    """Load the model of a trial's checkpoint, cached for the next piece of work in the same process."""
    store = open_store(store_uri)
    record = store.trial_record(trial)
    if record is None:
        raise UserError(f"trial {layout.short(trial)} has no record in {store.uri}; train it first")
    try:
        kept = record.checkpoints[checkpoint]
        weights = _checked_weights(store, layout.weights(trial, checkpoint), kept.sha256)
    except (KeyError, FileNotFoundError):
        stored = ", ".join(record.checkpoints) or "none"
        raise UserError(f"trial {layout.short(trial)} has no checkpoint {checkpoint!r}; stored: {stored}") from None
    model = assembly.build_model(record.config)
    model.load_state_dict(weights)
    return ready(model, device, record.config.recipe.precision), record


def _checked_weights(store: Store, path: str, expected: str) -> dict[str, Any]:
    """Load the tensors of a checkpoint; raise a UserError if the file does not match the checksum in its record."""
    content = store.read(path)
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise UserError(
            f"{store.uri}/{path} is damaged: its record expects sha256 {expected[:16]}…, the file has {found[:16]}…; "
            f"to train it again delete the folder {path.rpartition('/')[0]} of the store and run the study"
        )
    return dict(load(content))


def trial_parts(store_uri: str, trial: str, checkpoint: str, data_dir: str | None, device: str) -> tuple[Any, Any, Any]:
    """Return the model, the test images and their labels."""
    model, record = trial_model(store_uri, trial, checkpoint, device)
    bundle = trial_data(record, data_dir).limited(record.config.train_images, record.config.test_images)
    return model, bundle.test_images, bundle.test_labels


def trial_data_sha256(store_uri: str, trial: str, checkpoint: str, data_dir: str | None, device: str) -> dict[str, str]:
    """Return the SHA-256 of the trial's data set, by the name of the data set."""
    _, record = trial_model(store_uri, trial, checkpoint, device)
    return {record.config.dataset: trial_data(record, data_dir).sha256}


def trial_data(record: TrialRecord, data_dir: str | None) -> DataBundle:
    """Load the full data set of a trial; raise a UserError if the trial was trained on other data."""
    name = record.config.dataset
    bundle = data_set(name, data_dir)
    expected = record.data.get(name, bundle.sha256)  # older records lack it
    if bundle.sha256 != expected:
        whose, differing = f"trial {layout.short(record.trial)} was trained on", (expected, bundle.sha256)
        raise UserError(data_fault(name, data_dir, whose, differing, "train again in a new store"))
    return bundle


@functools.lru_cache(maxsize=1)
def data_set(name: str, data_dir: str | None) -> DataBundle:
    try:
        return data.load(name, data_dir, download=False)
    except data.DataMissing as fault:
        raise UserError(str(fault)) from None
