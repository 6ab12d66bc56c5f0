"""The model that the evaluation command attacks, a stored trial or external weights, and warnings about it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from sweep.errors import UserError
from sweep.evaluation.asked import Evaluation, evaluation
from sweep.evaluation.checkpoints import data_set, trial_data_sha256, trial_parts
from sweep.evaluation.outside import Outside, factory_sha256, outside_parts
from sweep.store.base import Store
from sweep.store.numerics import NUMERICS_VERSION
from sweep.store.records.evaluation import EvaluationRecord, ShardRecord
from sweep.store.records.record import Provenance
from sweep.store.same_data import data_fault
from sweep.studies import own
from trainers.attack import EvaluationAttack
from trainers.attacks.scoring.scorer import pixels
from trainers.config import CHECKPOINTS, is_checkpoint
from trainers.data import dataset_facts
from trainers.plugins import registry
from trainers.values import NORM_NAMES, Amount, NormName, as_float

EXAMPLES = {"linf": "8/255", "l2": "128/255", "l1": "12"}


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of the evaluation command."""

    checkpoint: str
    model: str | None = None
    dataset: str | None = None
    attacks: str | None = None
    epsilon: str | None = None
    norm: str | None = None
    images: str | None = None
    seed: int = 0
    shards: int = 1
    batch_size: int = 256
    standardize: bool = True
    device: str = "cpu"
    data_dir: str = "data"
    plugins: tuple[str, ...] = ()
    study: str | None = None  # study whose tables get a row for the model
    display: str | None = None  # the row's name
    counterexamples: bool = True

    @property
    def balls(self) -> dict[NormName, str]:
        """Return the radius by norm; raise a UserError if the two options do not match."""
        norms = [part.strip() for part in (self.norm or "linf").split(",")]
        unknown = [name for name in norms if name not in NORM_NAMES]
        if unknown or len(set(norms)) < len(norms):
            raise UserError(f"--norm {self.norm!r} must be {', '.join(NORM_NAMES)}, or several of them such as linf,l2")
        if self.epsilon is None and norms != ["linf"]:
            raise UserError(f"--norm {self.norm} needs its own --epsilon, such as {EXAMPLES[norms[-1]]}")
        radii = [part.strip() for part in (self.epsilon or "8/255").split(",")]
        if len(radii) != len(norms):
            raise UserError(f"--norm {self.norm or 'linf'} and --epsilon {self.epsilon} must name as many of each")
        given = dict(zip(norms, radii, strict=True))
        return {name: _radius(name, given[name]) for name in NORM_NAMES if name in given}


def _radius(norm: str, text: str) -> str:
    try:
        found = str(TypeAdapter(Amount).validate_python(text))
    except ValueError:
        found = ""
    if not found or (norm == "linf" and as_float(found) > 1):
        most = ", from 0 to 1" if norm == "linf" else ""
        raise UserError(f"--epsilon {text!r} must be a number or a fraction such as 8/255{most}")
    return found


@dataclass(frozen=True)
class Subject:
    """The evaluated model: a trial's checkpoint, or external weights under a name derived from their content."""

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

    def parts_for(self, attack: EvaluationAttack) -> tuple[Any, Any, Any]:
        """Return model, images and labels, with the images replaced if the attack brings its own."""
        model, images, labels = self.parts()
        (dataset,) = self.data()
        try:
            return model, attack.images_of(images, labels, dataset, self.data_dir), labels
        except ValueError as fault:  # among others, for missing files
            raise UserError(str(fault)) from None

    def data(self) -> dict[str, str]:
        """Return the SHA-256 of the data set, by the name of the data set."""
        if self.outside is not None:
            return {self.outside.dataset: data_set(self.outside.dataset, self.data_dir).sha256}
        return trial_data_sha256(self.store, self.name, self.checkpoint, self.data_dir, self.device)

    def check_data(self, store: Store, wanted: Iterable[Evaluation]) -> None:
        """Raise a UserError if stored results of these evaluations are based on other data.

        Older records do not name their data and are accepted.
        """
        for one in wanted:
            paths = store.record_paths(ShardRecord, one.folder)
            kept: list[Provenance] = [
                *store.records(EvaluationRecord, [one.record], lambda fault: None),
                *store.records(ShardRecord, paths, lambda fault: None),
            ]
            for name, sha256 in self.data().items():
                other = next((record for record in kept if record.data.get(name, sha256) != sha256), None)
                if other is not None:
                    whose, differing = f"evaluation {one.record} was made on", (other.data[name], sha256)
                    raise UserError(data_fault(name, self.data_dir, whose, differing, "evaluate into another --store"))

    def evaluation(self, attack: EvaluationAttack, options: EvaluateOptions) -> Evaluation:
        return evaluation(
            self.name,
            self.checkpoint,
            attack,
            len(self.parts()[1]),
            shards=options.shards,
            batch_size=options.batch_size,
            counterexamples=options.counterexamples,
        )

    def classes(self) -> int:
        model, images, _ = self.parts()
        return int(model(pixels(images[:2], self.device)).shape[1])

    def warnings(self) -> list[str]:
        """Return warnings about models that would silently invalidate an evaluation, such as random outputs."""
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
            notes.append(
                "the model's output is random: verdicts of a fixed attack overstate its robustness; use autoattack-rand"
            )
        if batch.min() < 0 or batch.max() > 1:
            notes.append("images lie outside [0, 1]: the attacks' box does not hold them")
        return notes


def check_device(device: str) -> None:
    """Raise a UserError if the device cannot be used."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError) as fault:
        reason = str(fault).splitlines()[0].partition(". ")[0]
        raise UserError(f"--device {device!r} cannot be used: {reason}") from None


def check_options(options: EvaluateOptions) -> None:
    _ = options.balls
    try:
        for plugin in options.plugins:
            registry.load_plugin(plugin)
    except ValueError as fault:
        raise UserError(str(fault)) from None
    check_device(options.device)
    if options.dataset is not None:
        try:
            dataset_facts(options.dataset)
        except ValueError as fault:
            raise UserError(str(fault)) from None


def find_subject(store: Store, options: EvaluateOptions) -> Subject:
    trial, _, kept = options.checkpoint.rpartition("/")
    if is_checkpoint(kept) and re.fullmatch(r"[0-9a-f]{16,64}", trial):
        record = store.trial_record(trial)
        if record is None:
            raise UserError(f"trial {trial} has no record in {store.uri}")
        own.require_same(record.config)
        return Subject(record.trial, kept, store.uri, options.data_dir, options.device)
    path = Path(os.path.expanduser(options.checkpoint))
    if not path.is_file():
        kinds = "|".join([*CHECKPOINTS, "epoch-N"])
        raise UserError(f"checkpoint {options.checkpoint} is neither a file nor TRIAL/{kinds} of {store.uri}")
    if options.model is None or options.dataset is None:
        raise UserError("weights from elsewhere need --model NAME|factory.py:function and --dataset")
    outside = Outside(str(path.absolute()), options.model, options.dataset, options.standardize)
    outside = replace(outside, digest=_digest(path, outside))
    return Subject(f"outside-{outside.digest}", "outside", store.uri, options.data_dir, options.device, outside)


def _digest(path: Path, outside: Outside) -> str:
    """Return a hash of everything that can change a verdict: the weights, the network, the data set and numerics."""
    facts = {
        "model": outside.model,
        "dataset": outside.dataset,
        "standardize": outside.standardize,
        "numerics": NUMERICS_VERSION,
    }
    try:
        facts_of_images = dataset_facts(outside.dataset)
        registry.record_build(outside.model, facts_of_images.classes, facts_of_images.shape)
        images = registry.sha256_of(registry.DATASETS, outside.dataset)
        network = registry.sha256_of(registry.NETWORKS, outside.model)
    except ValueError as fault:  # an installed plug-in that fails to load
        raise UserError(str(fault)) from None
    facts |= ({"images": images} if images else {}) | ({"network": network} if network else {})
    if ".py:" in outside.model:
        file, _, function = outside.model.rpartition(":")
        factory = Path(os.path.expanduser(file))
        if not factory.is_file():
            raise UserError(f"model factory {factory} does not exist")
        facts |= {"factory": factory_sha256(outside), "model": function}
    return hashlib.sha256(path.read_bytes() + json.dumps(facts, sort_keys=True).encode()).hexdigest()
