"""Where a claim's numbers come from: our records, or the paper's own printed cells."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, Protocol

from reports.claims.margins import OF_COURSE, OF_IMAGES
from reports.departures import Departures
from reports.margins import MARGIN_EVIDENCE
from reports.papers.paper import Paper
from reports.planned import Planned
from reports.results import Results
from reports.statistics import Sample
from reports.tables.table import Key, TableCell


class Seeds(NamedTuple):
    """How many of a number's planned seeds are in it, and where the others went."""

    used: int
    planned: int
    collapsed: int = 0
    failed: int = 0
    near_chance: int = 0  # among the used ones
    unmeasured: int = 0  # trained, but without this number

    @property
    def lost(self) -> bool:
        """Not merely still to come."""
        return self.collapsed + self.failed > 0

    @property
    def all_lost(self) -> bool:
        """Whether seeds that collapsed or failed are all that is known of it; a measure not taken loses nothing."""
        return self.lost and not self.used and not self.unmeasured

    @property
    def text(self) -> str:
        """Empty where all are in it and learned something."""
        n = [] if self.used == self.planned else [f"n = {self.used} of {self.planned}"]
        counts = ((self.collapsed, "collapsed ‡"), (self.failed, "failed §"), (self.near_chance, "near chance ≈"))
        return ", ".join([*n, *(f"{count} {words}" for count, words in counts if count)])


class Source(Protocol):
    paper: Paper

    def sample(self, key: Key) -> Sample | None: ...

    def combined(self, first: Key, second: Key, sign: int) -> Sample | None:
        """Sum (sign 1) or difference (-1) of two measures of one method."""
        ...

    def seeds(self, key: Key) -> Seeds | None:
        """None where nothing is known of the plan."""
        ...

    def departures(self, key: Key) -> tuple[str, ...]:
        """Settings behind this number that are not the paper's, in words."""
        ...

    def estimate(self, study: str) -> str:
        """How the mean margins of this setting were measured, in words; empty where the source does not say."""
        ...

    def display(self, study: str, label: str) -> str: ...


class Ours:
    """From records."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.paper = results.paper
        self._departures = Departures(results)
        self._cells: dict[Key, TableCell] = {}  # many claims ask for the same number

    def _cell(self, key: Key) -> TableCell:
        """Empty where the study has no such label: another of the same method is not what the claim is about."""
        if key not in self._cells:
            known = key.label in self.results.labels.get(key.study, {})
            made = self._from_margins if key.measure in (*OF_IMAGES, *OF_COURSE) else self.results.cell
            self._cells[key] = made(key) if known else TableCell(key)
        return self._cells[key]

    def _from_margins(self, key: Key) -> TableCell:
        """A measure that no table shows, from the arrays of the diagnostics or from the training's curve."""
        plain = self.results.cell(replace(key, measure="margin"))
        planned = self.results.planned(key.study, key.label)
        found = {one.seed: self._of_training(key, one) for one in planned if one.status == "done"}
        values = {seed: value for seed, value in sorted(found.items()) if value is not None}
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
        """Seed by seed, over the seeds that have both."""
        by_seed = []
        for cell in (self._cell(first), self._cell(second)):
            by_seed.append(dict(zip(cell.seeds, cell.sample.values if cell.sample else (), strict=True)))
        seeds = [seed for seed in by_seed[0] if seed in by_seed[1]]
        return Sample.of([by_seed[0][seed] + sign * by_seed[1][seed] for seed in seeds]) if seeds else None

    def departures(self, key: Key) -> tuple[str, ...]:
        return self._departures.of(self._cell(key))  # what is made from margins keeps the margins' key

    def estimate(self, study: str) -> str:
        return MARGIN_EVIDENCE[self.results.margins.estimator(study)] if study in self.results.labels else ""

    def display(self, study: str, label: str) -> str:
        return self.results.labels.get(study, {}).get(label, label.upper())


class InPrint:
    """From the printed tables; where two tables print a cell, the first one counts."""

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self._samples: dict[tuple[str, str, str, str], Sample] = {}
        for cell in (cell for table in paper.tables for cell in table.cells()):
            key = cell.key
            self._samples.setdefault((key.study, cell.claim_label, key.measure, key.epsilon or ""), cell.sample)

    def sample(self, key: Key) -> Sample | None:
        radii = (key.epsilon,) if key.epsilon else ("", self.paper.epsilon)
        found = [self._samples.get((key.study, key.label, key.measure, radius)) for radius in radii]
        return next((sample for sample in found if sample is not None), None)

    def combined(self, first: Key, second: Key, sign: int) -> Sample | None:
        """From the two spreads as if they were independent: the paper prints no single seeds."""
        one, two = self.sample(first), self.sample(second)
        if one is None or two is None:
            return None
        return Sample(one.mean + sign * two.mean, math.hypot(one.std, two.std), min(one.n, two.n))

    def seeds(self, key: Key) -> Seeds | None:
        return None

    def departures(self, key: Key) -> tuple[str, ...]:
        return ()

    def estimate(self, study: str) -> str:
        return ""

    def display(self, study: str, label: str) -> str:
        return self.paper.display(label)
