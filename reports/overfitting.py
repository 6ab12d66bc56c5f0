"""Robust overfitting: what trainings lost from their best checkpoint to their last, by records that exist anyway."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from reports.names import attack_name
from reports.planned import Planned
from reports.results import Results
from reports.statistics import Sample, interval
from reports.tables.table import Key, Rounding, TableCell

# Which images each kind of checkpoint was chosen on, and the column of the curve that chose it.
CHOSEN_ON = {"best_validation": "held-out images", "best_test": "test images"}
CURVES = {"test images": "test_pgd_accuracy", "held-out images": "validation_pgd_accuracy"}
Pair = tuple[float, float]  # best and last, in percent
Read = Callable[[Planned], Pair | None]


@dataclass(frozen=True)
class WithInterval(Rounding):
    """The mean with its 95 % interval instead of a spread."""

    def text(self, sample: Sample) -> str:
        bounds = interval(sample)
        mean = _rounded(sample.mean)
        return mean if bounds is None else f"{mean} [{_rounded(bounds[0])}, {_rounded(bounds[1])}]"


@dataclass(frozen=True)
class Decline:
    """Both checkpoints of every training that has both, measured in one way."""

    study: str
    best: str  # the checkpoint's name
    way: str  # part of the measure's name
    attack: str
    images: str  # what it was measured on
    pairs: dict[str, dict[int, Pair]]  # label -> seed -> accuracies

    @property
    def flattered(self) -> bool:
        """Whether the best epoch was chosen on the very images that it is measured on."""
        return CHOSEN_ON.get(self.best) == self.images

    def sample(self, label: str) -> Sample | None:
        pairs = self.pairs.get(label)
        return Sample.of([best - last for _, (best, last) in sorted(pairs.items())]) if pairs else None

    @property
    def header(self) -> str:
        return f"{self.attack}, best − last"

    @property
    def n(self) -> str:
        counts = sorted({len(pairs) for pairs in self.pairs.values()})
        return f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"

    @property
    def note(self) -> str:
        text = (
            f"{self.header}: robust overfitting, the accuracy on {self.images} at {self.best} minus that at the last "
            f"epoch, seed by seed, in points with its 95 % interval (Student, {self.n})."
        )
        if self.flattered:
            text += " The best epoch was chosen on these very images, so a part of the difference is chance."
        return text


def declines(results: Results, study: str) -> list[Decline]:
    """By AutoAttack where both checkpoints were evaluated; and by PGD: evaluations, else diagnostics, else curves."""
    best = _best_checkpoint(results, study)
    if best is None:
        return []
    found = {}
    for way, attack, images, read in _ways(results, study, best):
        kind = "autoattack" if way == "autoattack" else "pgd"
        if kind in found:
            continue
        pairs = {label: _pairs(results, study, label, read) for label in results.labels[study]}
        if any(pairs.values()):
            known = {label: one for label, one in pairs.items() if one}
            found[kind] = Decline(study, best, way, attack, images, known)
    return list(found.values())


def cell(results: Results, decline: Decline, label: str) -> TableCell:
    """In a table: the mean difference with its interval; marks and holes are those of the study's own cells."""
    key = Key(decline.study, label, f"overfitting-{decline.way}", results.epsilon(decline.study), decline.best)
    empty = results.cell(replace(key, measure="clean"))
    sample, seeds = decline.sample(label), tuple(sorted(decline.pairs.get(label, ())))
    made = replace(empty, key=key, sample=sample, seeds=seeds, warned=False, rounding=WithInterval())
    return replace(made, planned=0, near_chance=0) if results.from_outside(decline.study, label) else made


def _best_checkpoint(results: Results, study: str) -> str | None:
    """That of the study's tables, or, where these show the last one, another that its trainings kept."""
    headline = results.data.headline(study)
    if headline in CHOSEN_ON:
        return headline
    cells = results.data.cells
    kept = cells.loc[cells["study"] == study, "checkpoints"]
    return next((name for name in CHOSEN_ON if any(isinstance(one, dict) and name in one for one in kept)), None)


def _ways(results: Results, study: str, best: str) -> Iterator[tuple[str, str, str, Read]]:
    """Name, attack, images and reader of each way, the preferred ones first."""
    for attack in ("autoattack", "pgd-20"):
        yield attack, attack_name(attack), "test images", _evaluated(results, study, best, attack)
    yield "diagnostics", attack_name("pgd-20"), "test images", _diagnosed(results, study, best)
    curves = _curves(results, study, best)
    # On images that did not choose the epoch, where there are such.
    for images in sorted(CURVES, key=lambda images: images == CHOSEN_ON[best]):
        yield "curve", "PGD", images, curves(CURVES[images])


def _pairs(results: Results, study: str, label: str, read: Read) -> dict[int, Pair]:
    done = [one for one in results.planned(study, label) if one.status == "done"]
    return {one.seed: pair for one in done if (pair := read(one)) is not None}


def _evaluated(results: Results, study: str, best: str, attack: str) -> Read:
    epsilon = results.epsilon(study)

    def read(planned: Planned) -> Pair | None:
        first, last = (results.evaluation(study, planned.trial, one, attack, epsilon) for one in (best, "last"))
        # Two numbers over different images differ for another reason.
        if first is None or last is None or first.images != last.images:
            return None
        return 100 * first.accuracy, 100 * last.accuracy

    return read


def _diagnosed(results: Results, study: str, best: str) -> Read:
    def read(planned: Planned) -> Pair | None:
        summaries = [results.data.diagnostics_summary(planned.trial, one, study) for one in (best, "last")]
        return _percent(*(one.get("test_pgd_accuracy") for one in summaries))

    return read


def _curves(results: Results, study: str, best: str) -> Callable[[str], Read]:
    cells = results.data.cells
    mine = cells[cells["study"] == study]
    chosen: dict[str, Any] = dict(zip(mine["trial"], mine["chosen_epochs"], strict=True))

    def reader(column: str) -> Read:
        def read(planned: Planned) -> Pair | None:
            epochs = chosen.get(planned.trial)
            at_best = epochs.get(best, {}) if isinstance(epochs, dict) else {}
            return _percent(at_best.get(column), planned.last_epoch.get(column))

        return read

    return reader


def _percent(*values: Any) -> Pair | None:
    if not all(isinstance(one, int | float) and math.isfinite(one) for one in values):
        return None
    best, last = values
    return 100 * best, 100 * last


def _rounded(value: float) -> str:
    """Never as -0.0."""
    return f"{round(value, 1) + 0.0:.1f}"
