"""Checkpoints of an untrusted store, paired with the verifier's own test images.

Records and weights are read as data only. A custom network or data set is used only if the verifier has registered it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from sweep.errors import UserError
from sweep.evaluation.checkpoints import data_set
from sweep.store import layout
from sweep.store.base import ABSENT, Store
from sweep.store.encoding import BrokenRecord
from sweep.store.numerics import NUMERICS_VERSION
from sweep.store.records.trial import TrialRecord
from sweep.studies import own
from sweep.trials.identity import trial_hash
from trainers import assembly
from trainers.attacks.scoring.counterexamples import Judged, judge
from trainers.attacks.scoring.scorer import pixels, ready
from trainers.loop.precision import laid_out
from trainers.loop.reproducible import kernels
from trainers.plugins import registry

BATCH = 256


class NotVerified(Exception):
    """A check could not be made because something is missing; nothing is known to be wrong."""


class Contradiction(Exception):
    """A record disagrees with the data that it describes."""


@dataclass
class Model:
    """A checkpoint whose weights match its record, with the verifier's own test images."""

    network: Any
    record: TrialRecord
    images: Tensor
    labels: Tensor
    data: dict[str, str]
    device: str
    data_dir: str | None
    _seen: dict[tuple[int, int], Judged] = field(default_factory=dict)

    def judged(self, images: Tensor, labels: Tensor) -> Judged:
        """Judge images in batches, with the same kernels as an evaluation."""
        parts = []
        with kernels(getattr(self.network, "evaluated_in", None), searched=False):
            for batch, wanted in zip(images.split(BATCH), labels.split(BATCH), strict=True):
                shown = laid_out(pixels(batch, self.device), self.network)
                parts.append(judge(self.network, shown, wanted.to(self.device)))
        columns = ((getattr(part, name) for part in parts) for name in ("wrong", "margins", "scales"))
        return Judged(*(torch.cat([one.cpu() for one in column]) for column in columns))

    def clean(self, first: int, last: int) -> Judged:
        """Judge a range of clean test images; the result is cached for all attacks on the same range."""
        if (first, last) not in self._seen:
            self._seen[first, last] = self.judged(self.images[first:last], self.labels[first:last])
        return self._seen[first, last]


def open_model(store: Store, trial: str, checkpoint: str, data_dir: str | None, device: str) -> Model:
    """Open a checkpoint for verification.

    Raises NotVerified if weights, network or data are missing, and Contradiction if they differ from the record.
    """
    if trial.startswith("outside-"):
        raise NotVerified("its weights came from elsewhere and are not in the store")
    try:
        record = store.trial_record(trial)
    except BrokenRecord as broken:
        raise Contradiction(str(broken)) from None
    if record is None:
        raise NotVerified(f"trial {layout.short(trial)} has no record")
    if checkpoint not in record.checkpoints:
        raise Contradiction(f"the trial's record knows no weights {checkpoint}")
    path = layout.weights(trial, checkpoint)
    fault = store.file_fault(path, record.checkpoints[checkpoint].sha256)
    if fault == ABSENT:
        raise NotVerified(f"weights {path} are absent")
    if fault is not None:
        raise Contradiction(f"weights {path}: {fault}")
    try:
        own.require_same(record.config)
    except UserError as unknown:
        raise NotVerified(str(unknown)) from None
    _check_name(record)
    network = assembly.build_model(record.config)
    try:
        network.load_state_dict(load(store.read(path)))
    except (SafetensorError, RuntimeError) as fault_found:
        raise Contradiction(
            f"weights {path} do not fit {record.config.model}: {str(fault_found).splitlines()[0]}"
        ) from None
    name = record.config.dataset
    try:
        bundle = data_set(name, data_dir)
    except UserError as absent:
        raise NotVerified(f"its data are absent: {absent}") from None
    expected = record.data.get(name)
    if expected not in (None, bundle.sha256):
        raise Contradiction(
            f"trained on data {name!r} of sha256 {str(expected)[:16]}…; here it is {bundle.sha256[:16]}…"
        )
    used = bundle.limited(record.config.train_images, record.config.test_images)
    prepared = ready(network, device, record.config.recipe.precision)
    return Model(prepared, record, used.test_images, used.test_labels, {name: bundle.sha256}, device, data_dir)


def _check_name(record: TrialRecord) -> None:
    """Raise Contradiction if the trial's name is not the hash of its configuration.

    Trials of another numerics version or of an unknown method are not checked.
    """
    method = record.config.method.split("+")[0]
    known = record.numerics == NUMERICS_VERSION and method in registry.METHODS.names()
    if known and not trial_hash(record.config).startswith(record.trial):
        raise Contradiction("the trial's name is not that of its configuration")
