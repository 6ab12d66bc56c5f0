"""Robust overfitting: the accuracy that trainings lost between their best checkpoint and their last epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from reports.analysis.names import attack_name
from reports.analysis.planned import Planned
from reports.analysis.results import Results
from reports.analysis.statistics import Sample, interval
from reports.tables.table import Key, Rounding, TableCell

# The images that each kind of checkpoint was chosen on, and the column of the curve with its accuracy.
CHOSEN_ON = {"best_validation": "held-out images", "best_test": "test images"}
CURVES = {"test images": "test_pgd_accuracy", "held-out images": "validation_pgd_accuracy"}


class BestAndLast(NamedTuple):
    """The accuracies of one training, in percent."""

    best: float
    last: float


Read = Callable[[Planned], BestAndLast | None]


@dataclass(frozen=True)
class WithInterval(Rounding):
    """A mean with its 95 % interval instead of a spread."""

    def text(self, sample: Sample) -> str:
        bounds = interval(sample)
        mean = _rounded(sample.mean)
        return mean if bounds is None else f"{mean} [{_rounded(bounds[0])}, {_rounded(bounds[1])}]"


@dataclass(frozen=True)
class Decline:
    """Best and last accuracy of every training that has both, measured in one way."""

    study: str
    best: str  # the checkpoint's name
    way: str  # part of the measure's name
    attack: str
    images: str  # what it was measured on
    pairs: dict[str, dict[int, BestAndLast]]  # label -> seed -> accuracies

    @property
    def flattered(self) -> bool:
        """Return whether the best epoch was chosen on the images that it is measured on."""
        return CHOSEN_ON.get(self.best) == self.images

    def sample(self, label: str) -> Sample | None:
        """Return best minus last of each seed, in percentage points."""
        pairs = self.pairs.get(label)
        return Sample.of([pair.best - pair.last for _, pair in sorted(pairs.items())]) if pairs else None

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
    """Return the declines under AutoAttack and under PGD, where both checkpoints were measured.

    For PGD the first available source counts: evaluations, then diagnostics, then training curves.
    """
    best = _best_checkpoint(results, study)
    if best is None:
        return []
    by_kind = {}
    for way, attack, images, read in _ways(results, study, best):
        kind = "autoattack" if way == "autoattack" else "pgd"
        if kind in by_kind:
            continue
        pairs = {label: _pairs(results, study, label, read) for label in results.labels[study]}
        measured = {label: by_seed for label, by_seed in pairs.items() if by_seed}
        if measured:
            by_kind[kind] = Decline(study, best, way, attack, images, measured)
    return list(by_kind.values())


def cell(results: Results, decline: Decline, label: str) -> TableCell:
    """Return the table cell with the mean difference. Marks and missing seeds are those of the study's own cells."""
    key = Key(decline.study, label, f"overfitting-{decline.way}", results.epsilon(decline.study), decline.best)
    empty = results.cell(replace(key, measure="clean"))
    sample, seeds = decline.sample(label), tuple(sorted(decline.pairs.get(label, ())))
    filled = replace(empty, key=key, sample=sample, seeds=seeds, warned=False, rounding=WithInterval())
    return replace(filled, planned=0, near_chance=0) if results.from_outside(decline.study, label) else filled


def _best_checkpoint(results: Results, study: str) -> str | None:
    """Return the checkpoint of the study's tables, or another stored one if these show the last epoch."""
    headline = results.data.headline(study)
    if headline in CHOSEN_ON:
        return headline
    cells = results.data.cells
    stored = [names for names in cells.loc[cells["study"] == study, "checkpoints"] if isinstance(names, dict)]
    return next((best for best in CHOSEN_ON if any(best in names for names in stored)), None)


def _ways(results: Results, study: str, best: str) -> Iterator[tuple[str, str, str, Read]]:
    """Yield name, attack, images and reader of each way to measure, the preferred ones first."""
    for attack in ("autoattack", "pgd-20"):
        yield attack, attack_name(attack), "test images", _evaluated(results, study, best, attack)
    yield "diagnostics", attack_name("pgd-20"), "test images", _diagnosed(results, study, best)
    curves = _curves(results, study, best)
    # Images that did not choose the epoch come first.
    for images in sorted(CURVES, key=lambda images: images == CHOSEN_ON[best]):
        yield "curve", "PGD", images, curves(CURVES[images])


def _pairs(results: Results, study: str, label: str, read: Read) -> dict[int, BestAndLast]:
    done = [planned for planned in results.planned(study, label) if planned.status == "done"]
    return {planned.seed: pair for planned in done if (pair := read(planned)) is not None}


def _evaluated(results: Results, study: str, best: str, attack: str) -> Read:
    epsilon = results.epsilon(study)

    def read(planned: Planned) -> BestAndLast | None:
        first, last = (results.evaluation(study, planned.trial, name, attack, epsilon) for name in (best, "last"))
        # Accuracies over different images are not comparable.
        if first is None or last is None or first.images != last.images:
            return None
        return BestAndLast(100 * first.accuracy, 100 * last.accuracy)

    return read


def _diagnosed(results: Results, study: str, best: str) -> Read:
    def read(planned: Planned) -> BestAndLast | None:
        summaries = [results.data.diagnostics_summary(planned.trial, name, study) for name in (best, "last")]
        return _percent(*(summary.get("test_pgd_accuracy") for summary in summaries))

    return read


def _curves(results: Results, study: str, best: str) -> Callable[[str], Read]:
    cells = results.data.cells
    mine = cells[cells["study"] == study]
    chosen: dict[str, Any] = dict(zip(mine["trial"], mine["chosen_epochs"], strict=True))

    def reader(column: str) -> Read:
        def read(planned: Planned) -> BestAndLast | None:
            epochs = chosen.get(planned.trial)
            at_best = epochs.get(best, {}) if isinstance(epochs, dict) else {}
            return _percent(at_best.get(column), planned.last_epoch.get(column))

        return read

    return reader


def _percent(best: Any, last: Any) -> BestAndLast | None:
    """Return both shares in percent; None if one is missing or not finite."""
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in (best, last)):
        return None
    return BestAndLast(100 * best, 100 * last)


def _rounded(value: float) -> str:
    """Round to one digit, without a negative zero."""
    return f"{round(value, 1) + 0.0:.1f}"
