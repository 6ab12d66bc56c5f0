"""Counterexamples on other models: who breaks whom, and what is left of each after everything that is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reports.planned import Planned
from reports.results import Results
from reports.statistics import Sample
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
    """A mean that says how many images it took beside those of AutoAttack."""

    fallen: int = 0

    def text(self, sample: Sample) -> str:
        return super().text(sample) + (f" ({self.fallen} fell)" if self.fallen else "")


@dataclass(frozen=True)
class WorstKnown:
    """Of one model, over the images of its AutoAttack."""

    left: np.ndarray
    reference: np.ndarray

    @property
    def accuracy(self) -> float:
        return float(self.left.mean())

    @property
    def fallen(self) -> int:
        return int((self.reference & ~self.left).sum())


class Transfers:
    """Of one study, at the checkpoint and in the ball that its tables show."""

    def __init__(self, results: Results, study: str) -> None:
        self.results, self.study = results, study
        self.checkpoint, self.epsilon = results.shown_checkpoint(study), results.epsilon(study)
        self.norm = results.norm(study)
        self._records: dict[str, TransferRecord | None] = {}
        self._sources: dict[str, dict[str, list[Transfer]]] = {}
        self._paths = self._evaluations() if results.data.has_transfers else {}

    def _evaluations(self) -> dict[str, list[tuple[str, Any]]]:
        """Trial -> path and images of every evaluation of the ball, the clean images included."""
        frame = self.results.data.evaluations
        columns = ("trial", "checkpoint", "norm", "epsilon", "attack", "path", "settings")
        found: dict[str, list[tuple[str, Any]]] = {}
        for row in zip(*(frame[name] for name in columns), strict=True):
            trial, checkpoint, norm, epsilon, attack, path, settings = row
            in_ball = (norm, epsilon) == (self.norm, self.epsilon) or attack == "clean"
            if checkpoint == self.checkpoint and in_ball:
                found.setdefault(trial, []).append((path, settings.get("images")))
        return found

    def _record(self, trial: str) -> TransferRecord | None:
        if trial not in self._records:
            self._records[trial] = self.results.data.transfers(trial, self.checkpoint, self.norm, self.epsilon)
        return self._records[trial]

    def _tried(self, trial: str) -> dict[str, list[Transfer]]:
        """By the model that the counterexamples were kept for."""
        if trial not in self._sources:
            found: dict[str, list[Transfer]] = {}
            record = self._record(trial)
            for one in record.transfers if record else ():
                if one.checkpoint in (self.checkpoint, OUTSIDE):
                    found.setdefault(layout.short(one.trial), []).append(one)
            self._sources[trial] = found
        return self._sources[trial]

    def worst_known(self, trial: str) -> WorstKnown | None:
        """None without AutoAttack, or where nothing was tried on it."""
        reference = self.results.evaluation(self.study, trial, self.checkpoint, REFERENCE, self.epsilon)
        record = self._record(trial) if reference is not None else None
        if reference is None or record is None:
            return None
        data = self.results.data
        survivors = data.verdicts(reference.path)
        first = _first(data.settings(reference.path).get("images"))
        left = survivors.copy()
        for path, images in self._paths.get(trial, []):
            left &= ~_placed(~data.verdicts(path), _first(images), first, len(left))
        for one in record.transfers:
            left &= ~_placed(one.fooled_images, one.first, first, len(left))
        return WorstKnown(left, survivors)

    def share(self, source: str, target: str) -> float | None:
        """The percentage of the target's right images that the source's counterexamples break; both are trials."""
        tried = self._tried(target).get(source, [])
        if not tried:
            return None
        widest = max(tried, key=lambda one: one.images)
        fooled = np.zeros(widest.images, bool)
        for one in tried:
            fooled |= _placed(one.fooled_images, one.first, widest.first, widest.images)
        return 100 * float(fooled.sum()) / widest.right if widest.right else None

    def seeds(self, label: str) -> list[Planned]:
        return [one for one in self.results.seeds(self.study, label) if one.status == "done"]

    def shares(self, source: str, target: str) -> dict[int, float]:
        """By seed of the target, the mean over the source's models; both are labels, and no model is its own source."""
        found = {}
        for one in self.seeds(target):
            values = [self.share(other.trial, one.trial) for other in self.seeds(source) if other.trial != one.trial]
            known = [value for value in values if value is not None]
            if known:
                found[one.seed] = float(np.mean(known))
        return found

    def worst_cell(self, label: str) -> TableCell:
        found = {one.seed: self.worst_known(one.trial) for one in self.seeds(label)}
        known = {seed: one for seed, one in sorted(found.items()) if one is not None}
        values = {seed: 100 * one.accuracy for seed, one in known.items()}
        return self._cell(label, WORST_KNOWN, values, WithFallen(fallen=sum(one.fallen for one in known.values())))

    def share_cell(self, source: str, target: str) -> TableCell:
        return self._cell(target, f"transfer-{source}", self.shares(source, target), Rounding())

    def _cell(self, label: str, measure: str, values: dict[int, float], rounding: Rounding) -> TableCell:
        key = Key(self.study, label, measure, self.epsilon, self.checkpoint)
        empty = self.results.cell(replace(key, measure="clean"))
        sample = Sample.of([values[seed] for seed in sorted(values)]) if values else None
        return replace(empty, key=key, sample=sample, seeds=tuple(sorted(values)), warned=False, rounding=rounding)


def _first(images: Any) -> int:
    return int(images[0]) if images else 0


def _placed(bits: np.ndarray, first: int, wanted_first: int, wanted: int) -> np.ndarray:
    """Verdicts about test images from `first` on as verdicts about those that are wanted; False where there is none."""
    found = np.zeros(wanted, bool)
    start, end = max(first, wanted_first), min(first + len(bits), wanted_first + wanted)
    if start < end:
        found[start - wanted_first : end - wanted_first] = bits[start - first : end - first]
    return found
