"""What the evaluation command attacks, a trial of the store or weights from elsewhere, and what looks wrong with it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from sweep.errors import UserError
from sweep.evaluation.asked import Evaluation, evaluation
from sweep.evaluation.checkpoints import data_set, trial_data_sha256, trial_parts
from sweep.evaluation.outside import Outside, outside_parts
from sweep.store.base import Store
from sweep.studies import own
from sweep.trials.identity import NUMERICS_VERSION
from trainers import registry
from trainers.attack import EvaluationAttack
from trainers.config import CHECKPOINTS
from trainers.data import dataset_facts
from trainers.evaluate import pixels
from trainers.values import Amount, as_float


@dataclass(frozen=True)
class EvaluateOptions:
    """What the evaluation command was asked for."""

    checkpoint: str
    model: str | None = None
    dataset: str | None = None
    attacks: str = "main"
    epsilon: str = "8/255"
    images: str | None = None
    seed: int = 0
    shards: int = 1
    batch_size: int = 256
    standardize: bool = True
    device: str = "cpu"
    data_dir: str = "data"


@dataclass(frozen=True)
class Subject:
    """What is evaluated: a trial's checkpoint, or weights from elsewhere under a name made of their content."""

    name: str
    checkpoint: str
    store: str
    data_dir: str
    device: str
    outside: Outside | None = None

    def parts(self) -> tuple[Any, Any, Any]:
        if self.outside is not None:
            return outside_parts(self.outside, self.data_dir, self.device)
        return trial_parts(self.store, self.name, self.checkpoint, self.data_dir, self.device)

    def data(self) -> dict[str, str]:
        """The SHA-256 of the data set that the images come from, by its name."""
        if self.outside is not None:
            return {self.outside.dataset: data_set(self.outside.dataset, self.data_dir).sha256}
        return trial_data_sha256(self.store, self.name, self.checkpoint, self.data_dir, self.device)

    def evaluation(self, attack: EvaluationAttack, shards: int, batch_size: int) -> Evaluation:
        present = len(self.parts()[1])
        return evaluation(self.name, self.checkpoint, attack, present, shards=shards, batch_size=batch_size)

    def classes(self) -> int:
        model, images, _ = self.parts()
        return int(model(pixels(images[:2], self.device)).shape[1])

    def warnings(self) -> list[str]:
        """What makes an evaluation worthless without anyone noticing."""
        model, images, labels = self.parts()
        batch = pixels(images[:64], self.device)
        with torch.no_grad():
            first, second = model(batch), model(batch)
        if first.dim() != 2 or first.shape[1] <= int(labels.max()):
            raise UserError(
                f"the model returns an output of shape {tuple(first.shape)} for {len(batch)} images; "
                f"expected one logit for each of {int(labels.max()) + 1} classes"
            )
        notes = []
        finite = bool(torch.isfinite(first).all())
        if not finite:
            notes.append("the model returns values that are not finite: attacks cannot work on them")
        if (first >= 0).all() and torch.allclose(
            first.sum(dim=1), torch.ones(len(first), device=first.device), atol=1e-4
        ):
            notes.append(
                "the model returns probabilities (rows sum to one), not logits: gradients vanish, attacks fail"
            )
        if finite and not torch.allclose(first, second, rtol=1e-4, atol=1e-5):
            notes.append("the model's output is random: verdicts of a fixed attack overstate its robustness")
        if batch.min() < 0 or batch.max() > 1:
            notes.append("images lie outside [0, 1]: the attacks' box does not hold them")
        return notes


def check_options(options: EvaluateOptions) -> None:
    try:
        TypeAdapter(Amount).validate_python(options.epsilon)
        radius = as_float(options.epsilon)
    except ValueError:
        radius = -1.0
    if not 0 <= radius <= 1:
        raise UserError(f"--epsilon {options.epsilon!r} must be a number or a fraction such as 8/255, from 0 to 1")
    try:
        torch.zeros(1, device=options.device).item()
    except (RuntimeError, AssertionError, ImportError) as fault:
        reason = str(fault).splitlines()[0].partition(". ")[0]
        raise UserError(f"--device {options.device!r} cannot be used: {reason}") from None
    if options.dataset is not None:
        try:
            dataset_facts(options.dataset)
        except ValueError as fault:
            raise UserError(str(fault)) from None


def find_subject(store: Store, options: EvaluateOptions) -> Subject:
    trial, _, kept = options.checkpoint.rpartition("/")
    if kept in CHECKPOINTS and re.fullmatch(r"[0-9a-f]{16,64}", trial):
        record = store.trial_record(trial)
        if record is None:
            raise UserError(f"trial {trial} has no record in {store.uri}")
        own.require_same(record.config)
        return Subject(record.trial, kept, store.uri, options.data_dir, options.device)
    path = Path(os.path.expanduser(options.checkpoint))
    if not path.is_file():
        kinds = "|".join(CHECKPOINTS)
        raise UserError(f"checkpoint {options.checkpoint} is neither a file nor TRIAL/{kinds} of {store.uri}")
    if options.model is None or options.dataset is None:
        raise UserError("weights from elsewhere need --model NAME|factory.py:function and --dataset")
    outside = Outside(str(path.absolute()), options.model, options.dataset, options.standardize)
    name = f"outside-{_digest(path, outside)}"
    return Subject(name, "outside", store.uri, options.data_dir, options.device, outside)


def _digest(path: Path, outside: Outside) -> str:
    """Of everything that can move a verdict: the weights, and what makes a network of them."""
    facts = {
        "model": outside.model,
        "dataset": outside.dataset,
        "standardize": outside.standardize,
        "numerics": NUMERICS_VERSION,
    }
    if images := registry.sha256_of(registry.DATASETS, outside.dataset):
        facts["images"] = images
    if ".py:" in outside.model:
        file, _, function = outside.model.rpartition(":")
        factory = Path(os.path.expanduser(file))
        if not factory.is_file():
            raise UserError(f"model factory {factory} does not exist")
        facts |= {"factory": hashlib.sha256(factory.read_bytes()).hexdigest(), "model": function}
    return hashlib.sha256(path.read_bytes() + json.dumps(facts, sort_keys=True).encode()).hexdigest()
