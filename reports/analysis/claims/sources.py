"""Sources of the numbers behind claims: our records, or the paper's own printed cells."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, Protocol

from reports.analysis.claims.margins import OF_COURSE, OF_IMAGES
from reports.analysis.margins import MARGIN_EVIDENCE
from reports.analysis.planned import Planned
from reports.analysis.results import Results
from reports.analysis.statistics import Sample
from reports.comparison.departures import Departures
from reports.papers.paper import Paper
from reports.tables.table import Key, TableCell


class Seeds(NamedTuple):
    """The number of planned seeds behind a number, and what became of the others."""

    used: int
    planned: int
    collapsed: int = 0
    failed: int = 0
    near_chance: int = 0  # among the used ones
    unmeasured: int = 0  # trained, but without this number

    @property
    def lost(self) -> bool:
        """Return whether seeds collapsed or failed, and are not just to come."""
        return self.collapsed + self.failed > 0

    @property
    def all_lost(self) -> bool:
        """Return whether collapsed or failed seeds are all there is. A measure that was not taken loses nothing."""
        return self.lost and not self.used and not self.unmeasured

    @property
    def text(self) -> str:
        """Return the counts in words; '' if all planned seeds are used and none is near chance."""
        n = [] if self.used == self.planned else [f"n = {self.used} of {self.planned}"]
        counts = ((self.collapsed, "collapsed ‡"), (self.failed, "failed §"), (self.near_chance, "near chance ≈"))
        return ", ".join([*n, *(f"{count} {words}" for count, words in counts if count)])


class Source(Protocol):
    """A source of numbers for claims."""

    paper: Paper

    def sample(self, key: Key) -> Sample | None: ...

    def combined(self, first: Key, second: Key, sign: int) -> Sample | None:
        """Return the sum (sign 1) or difference (-1) of two measures of one label."""
        ...

    def seeds(self, key: Key) -> Seeds | None:
        """Return the seeds behind a number; None if the plan is unknown."""
        ...

    def departures(self, key: Key) -> tuple[str, ...]:
        """Return in words the settings behind this number that are not the paper's."""
        ...

    def estimate(self, study: str) -> str:
        """Return in words how the mean margins of this setting were measured; '' if the source does not say."""
        ...

    def display(self, study: str, label: str) -> str: ...


class Ours:
    """Numbers from our records."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.paper = results.paper
        self._departures = Departures(results)
        self._cells: dict[Key, TableCell] = {}  # many claims ask for the same number

    def _cell(self, key: Key) -> TableCell:
        """Return the cell, empty if the study has no such label: another one of the same method does not count."""
        if key not in self._cells:
            from_margins = key.measure in (*OF_IMAGES, *OF_COURSE)
            cell = self._from_margins if from_margins else self.results.cell
            has_label = key.label in self.results.labels.get(key.study, {})
            self._cells[key] = cell(key) if has_label else TableCell(key)
        return self._cells[key]

    def _from_margins(self, key: Key) -> TableCell:
        """Return the cell of a measure that no table has, from the diagnostics' arrays or the training curve."""
        plain = self.results.cell(replace(key, measure="margin"))
        planned = self.results.planned(key.study, key.label)
        by_seed = {training.seed: self._of_training(key, training) for training in planned if training.status == "done"}
        values = {seed: value for seed, value in sorted(by_seed.items()) if value is not None}
        sample = Sample.of(list(values.values())) if values else None
        return replace(plain, sample=sample, seeds=tuple(values))

    def _of_training(self, key: Key, planned: Planned) -> float | None:
        data = self.results.data
        if key.measure in OF_COURSE:
            curve = data.curve(planned.trial)
            return OF_COURSE[key.measure](curve["train_margin"].to_numpy(float)) if "train_margin" in curve else None
        checkpoint = key.checkpoint or self.results.shown_checkpoint(key.study)
        diagnostics = data.diagnostics(planned.trial, checkpoint, key.study)
        margins = diagnostics.arrays.get("train_margin") if diagnostics is not None else None
        return None if margins is None or not len(margins) else OF_IMAGES[key.measure](margins.astype(float))

    def seeds(self, key: Key) -> Seeds | None:
        cell = self._cell(key)
        if not cell.planned:
            return None
        used = cell.sample.n if cell.sample is not None else 0
        return Seeds(used, cell.planned, cell.collapsed, cell.failed, cell.near_chance, cell.done - used)

    def sample(self, key: Key) -> Sample | None:
        return self._cell(key).sample

    def combined(self, first: Key, second: Key, sign: int) -> Sample | None:
        """Return the combination seed by seed, over the seeds that have both."""
        by_seed = []
        for cell in (self._cell(first), self._cell(second)):
            by_seed.append(dict(zip(cell.seeds, cell.sample.values if cell.sample else (), strict=True)))
        seeds = [seed for seed in by_seed[0] if seed in by_seed[1]]
        return Sample.of([by_seed[0][seed] + sign * by_seed[1][seed] for seed in seeds]) if seeds else None

    def departures(self, key: Key) -> tuple[str, ...]:
        return self._departures.of(self._cell(key))  # a cell made from margins has the key of the margins

    def estimate(self, study: str) -> str:
        return MARGIN_EVIDENCE[self.results.margins.estimator(study)] if study in self.results.labels else ""

    def display(self, study: str, label: str) -> str:
        return self.results.labels.get(study, {}).get(label, label.upper())


class InPrint:
    """Numbers from the printed tables. If two tables print a cell, the first one counts."""

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self._samples: dict[tuple[str, str, str, str], Sample] = {}
        for cell in (cell for table in paper.tables for cell in table.cells()):
            key = cell.key
            self._samples.setdefault((key.study, cell.claim_label, key.measure, key.epsilon or ""), cell.sample)

    def sample(self, key: Key) -> Sample | None:
        radii = (key.epsilon,) if key.epsilon else ("", self.paper.epsilon)
        samples = (self._samples.get((key.study, key.label, key.measure, radius)) for radius in radii)
        return next((sample for sample in samples if sample is not None), None)

    def combined(self, first: Key, second: Key, sign: int) -> Sample | None:
        """Return the combination as if the two spreads were independent: the paper prints no single seeds."""
        base, added = self.sample(first), self.sample(second)
        if base is None or added is None:
            return None
        return Sample(base.mean + sign * added.mean, math.hypot(base.std, added.std), min(base.n, added.n))

    def seeds(self, key: Key) -> Seeds | None:
        return None

    def departures(self, key: Key) -> tuple[str, ...]:
        return ()

    def estimate(self, study: str) -> str:
        return ""

    def display(self, study: str, label: str) -> str:
        return self.paper.display(label)
