"""The evaluations and diagnoses that a study cell needs. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sweep.errors import UserError
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.studies.model import Study
from sweep.trials.cells import Cell, diagnosed_checkpoints, evaluated_checkpoints, evaluation_attacks
from trainers.attack import EvaluationAttack
from trainers.attacks import from_record
from trainers.config import TrialConfig
from trainers.data import dataset_facts
from trainers.plugins import registry
from trainers.values import NormName


@dataclass(frozen=True)
class Evaluation:
    """An attack on one checkpoint, whose result becomes one record. `trial` names a trial or external weights."""

    trial: str
    checkpoint: str
    attack: EvaluationAttack
    images: int
    shards: int = 1
    batch_size: int = 256
    counterexamples: bool = True  # saved, so that the verdicts can be verified

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a plug-in's attack together with its source, which the receiving process has not loaded."""
        attack = self.attack.model_dump(mode="json", exclude_none=True)
        source = registry.sources().get(self.attack.kind) if self.attack.plugin else None
        rest = (self.images, self.shards, self.batch_size, self.counterexamples)
        return _received, (self.trial, self.checkpoint, attack, source, *rest)

    @cached_property
    def folder(self) -> str:
        return layout.evaluation_folder(self.trial, self.checkpoint, self.attack.id)

    @cached_property
    def record(self) -> str:
        return layout.evaluation_record(self.trial, self.checkpoint, self.attack.id)

    @property
    def lease(self) -> str:
        """Return the name of the evaluation's lease, which is also the prefix of its chunks' leases."""
        return self.folder.replace("/", "-")

    @property
    def images_used(self) -> slice:
        """Return the evaluated images as a slice of the test set."""
        first = self.attack.images[0] if self.attack.images else 0
        return slice(first, first + self.images)

    @cached_property
    def cost(self) -> float:
        """Return the estimated cost in image passes, the unit of `training_cost`."""
        return self.images * self.attack.cost

    @property
    def piece(self) -> int:
        """Return the number of images computed and saved together; AutoAttack sets its own batch size."""
        return self.attack.batch_size or self.batch_size


def _received(trial: str, checkpoint: str, attack: dict[str, Any], source: str | None, *rest: Any) -> Evaluation:
    if source is not None:
        registry.load_source(attack["kind"], source)
    return Evaluation(trial, checkpoint, from_record(attack), *rest)


def evaluation(
    trial: str,
    checkpoint: str,
    attack: EvaluationAttack,
    test_images: int,
    *,
    shards: int = 1,
    batch_size: int = 256,
    counterexamples: bool = True,
) -> Evaluation:
    """Return the evaluation of a checkpoint; raise a UserError if the attack's images exceed the test set."""
    first, last = attack.images or (0, test_images)
    if not 0 <= first < last <= test_images:
        raise UserError(
            f"images {first}:{last} are not among the {test_images} test images; give a range within 0:{test_images}"
        )
    return Evaluation(trial, checkpoint, attack, last - first, shards, batch_size, counterexamples)


def test_images(config: TrialConfig) -> int:
    return config.test_images or dataset_facts(config.dataset).test_images


def evaluations_of(study: Study, cell: Cell) -> list[Evaluation]:
    assert cell.trial is not None
    settings = study.evaluation
    return [
        evaluation(
            cell.trial,
            checkpoint,
            attack,
            test_images(cell.config),
            shards=settings.shards,
            batch_size=settings.batch_size,
            counterexamples=settings.counterexamples,
        )
        for checkpoint in evaluated_checkpoints(study, cell.config)
        for attack in evaluation_attacks(study)
    ]


@dataclass(frozen=True)
class Diagnosis:
    """Margins, gradient norms and other measures of one checkpoint; `images` limits both parts to their first n."""

    trial: str
    checkpoint: str
    epsilon: str
    images: int | None = None
    norm: NormName = "linf"

    @property
    def record(self) -> str:
        return layout.diagnostics_record(self.trial, self.checkpoint, self.epsilon, self.images, self.norm)


def diagnoses_of(study: Study, cell: Cell) -> list[Diagnosis]:
    if cell.trial is None:
        return []
    settings = study.evaluation
    return [
        Diagnosis(cell.trial, checkpoint, settings.epsilon, settings.images, study.evaluation_norm)
        for checkpoint in diagnosed_checkpoints(study, cell.config)
    ]


def stored_results(store: Store) -> set[str]:
    """Return the paths of all evaluation and diagnostics files.

    Two listings replace a lookup per file, each of which takes some ten milliseconds in a remote store.
    """
    return {*store.record_paths(EvaluationRecord), *store.paths(layout.DIAGNOSTICS)}
