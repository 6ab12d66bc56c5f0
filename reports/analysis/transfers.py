"""Counterexamples on other models: which model breaks which, and the accuracy that remains after all known attacks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reports.analysis.planned import Planned
from reports.analysis.results import Results
from reports.analysis.statistics import Sample
from reports.store.rows import OUTSIDE
from reports.tables.table import Key, Rounding, TableCell
from sweep.store import layout
from sweep.store.records.transfer import Transfer, TransferRecord

WORST_KNOWN = "worst-known"
REFERENCE = "autoattack"
NOTE = (
    "Worst known: the images that are left after AutoAttack, all other stored attacks of this norm and radius, and the "
    "counterexamples of every other model tried on this one (sweep.transfer). In parentheses: how many images fell "
    "that AutoAttack had left, all seeds together."
)


@dataclass(frozen=True)
class WithFallen(Rounding):
    """A mean with the number of images that fell in addition to AutoAttack's."""

    fallen: int = 0

    def text(self, sample: Sample) -> str:
        return super().text(sample) + (f" ({self.fallen} fell)" if self.fallen else "")


@dataclass(frozen=True)
class WorstKnown:
    """The images that one model survives, of those that its AutoAttack was run on."""

    left: np.ndarray  # survives everything known
    reference: np.ndarray  # survives AutoAttack

    @property
    def accuracy(self) -> float:
        return float(self.left.mean())

    @property
    def fallen(self) -> int:
        """Return how many images fell that AutoAttack did not break."""
        return int((self.reference & ~self.left).sum())


class Transfers:
    """The transfer results of one study, at the checkpoint, norm and radius of its tables."""

    def __init__(self, results: Results, study: str) -> None:
        self.results, self.study = results, study
        self.checkpoint, self.epsilon = results.shown_checkpoint(study), results.epsilon(study)
        self.norm = results.norm(study)
        self._records: dict[str, TransferRecord | None] = {}
        self._sources: dict[str, dict[str, list[Transfer]]] = {}
        self._paths = self._evaluations() if results.data.has_transfers else {}

    def _evaluations(self) -> dict[str, list[tuple[str, Any]]]:
        """Return path and image range of every evaluation of this norm and radius, clean ones included, by trial."""
        frame = self.results.data.evaluations
        columns = ("trial", "checkpoint", "norm", "epsilon", "attack", "path", "settings")
        by_trial: dict[str, list[tuple[str, Any]]] = {}
        for row in zip(*(frame[name] for name in columns), strict=True):
            trial, checkpoint, norm, epsilon, attack, path, settings = row
            in_ball = (norm, epsilon) == (self.norm, self.epsilon) or attack == "clean"
            if checkpoint == self.checkpoint and in_ball:
                by_trial.setdefault(trial, []).append((path, settings.get("images")))
        return by_trial

    def _record(self, trial: str) -> TransferRecord | None:
        if trial not in self._records:
            self._records[trial] = self.results.data.transfers(trial, self.checkpoint, self.norm, self.epsilon)
        return self._records[trial]

    def _tried(self, trial: str) -> dict[str, list[Transfer]]:
        """Return what was tried on a trial, by the model that the counterexamples were made for."""
        if trial not in self._sources:
            by_source: dict[str, list[Transfer]] = {}
            record = self._record(trial)
            for transfer in record.transfers if record else ():
                if transfer.checkpoint in (self.checkpoint, OUTSIDE):
                    by_source.setdefault(layout.short(transfer.trial), []).append(transfer)
            self._sources[trial] = by_source
        return self._sources[trial]

    def worst_known(self, trial: str) -> WorstKnown | None:
        """Return the images that survive everything known; None without AutoAttack or without any transfer."""
        reference = self.results.evaluation(self.study, trial, self.checkpoint, REFERENCE, self.epsilon)
        record = self._record(trial) if reference is not None else None
        if reference is None or record is None:
            return None
        data = self.results.data
        after_reference = data.verdicts(reference.path)
        first = _first(data.settings(reference.path).get("images"))
        survivors = after_reference.copy()
        for path, images in self._paths.get(trial, []):
            survivors &= ~_aligned(~data.verdicts(path), _first(images), first, len(survivors))
        for transfer in record.transfers:
            survivors &= ~_aligned(transfer.fooled_images, transfer.first, first, len(survivors))
        return WorstKnown(survivors, after_reference)

    def share(self, source: str, target: str) -> float | None:
        """Return the percentage of the target's correctly classified images that the source's counterexamples break.

        source, target: trials.
        """
        tried = self._tried(target).get(source, [])
        if not tried:
            return None
        widest = max(tried, key=lambda transfer: transfer.images)
        fooled = np.zeros(widest.images, bool)
        for transfer in tried:
            fooled |= _aligned(transfer.fooled_images, transfer.first, widest.first, widest.images)
        return 100 * float(fooled.sum()) / widest.right if widest.right else None

    def seeds(self, label: str) -> list[Planned]:
        """Return the finished trainings of a label."""
        return [planned for planned in self.results.seeds(self.study, label) if planned.status == "done"]

    def shares(self, source: str, target: str) -> dict[int, float]:
        """Return, by seed of the target, the mean share over the source's models; a model is never its own source.

        source, target: labels.
        """
        by_seed = {}
        for planned in self.seeds(target):
            sources = [training.trial for training in self.seeds(source) if training.trial != planned.trial]
            shares = [share for trial in sources if (share := self.share(trial, planned.trial)) is not None]
            if shares:
                by_seed[planned.seed] = float(np.mean(shares))
        return by_seed

    def worst_cell(self, label: str) -> TableCell:
        """Return the cell of a label's worst-known accuracy."""
        by_seed = {planned.seed: self.worst_known(planned.trial) for planned in self.seeds(label)}
        worst = {seed: images for seed, images in sorted(by_seed.items()) if images is not None}
        values = {seed: 100 * images.accuracy for seed, images in worst.items()}
        fallen = sum(images.fallen for images in worst.values())
        return self._cell(label, WORST_KNOWN, values, WithFallen(fallen=fallen))

    def share_cell(self, source: str, target: str) -> TableCell:
        """Return the cell of the share of the target's images that the source breaks; both are labels."""
        return self._cell(target, f"transfer-{source}", self.shares(source, target), Rounding())

    def _cell(self, label: str, measure: str, values: dict[int, float], rounding: Rounding) -> TableCell:
        key = Key(self.study, label, measure, self.epsilon, self.checkpoint)
        empty = self.results.cell(replace(key, measure="clean"))
        sample = Sample.of([values[seed] for seed in sorted(values)]) if values else None
        return replace(empty, key=key, sample=sample, seeds=tuple(sorted(values)), warned=False, rounding=rounding)


def _first(images: Any) -> int:
    return int(images[0]) if images else 0


def _aligned(bits: np.ndarray, first: int, wanted_first: int, wanted: int) -> np.ndarray:
    """Return bits about test images from `first` on as bits about the wanted images; False for those not covered."""
    aligned = np.zeros(wanted, bool)
    start, end = max(first, wanted_first), min(first + len(bits), wanted_first + wanted)
    if start < end:
        aligned[start - wanted_first : end - wanted_first] = bits[start - first : end - first]
    return aligned
