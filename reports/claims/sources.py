"""Where a claim's numbers come from: our records, or the paper's own printed cells."""

from __future__ import annotations

import math
from typing import Protocol

from reports.departures import Departures
from reports.papers.paper import Paper
from reports.results import Results
from reports.statistics import Sample
from reports.tables.table import Key, TableCell


class Source(Protocol):
    paper: Paper

    def sample(self, key: Key) -> Sample | None: ...

    def combined(self, first: Key, second: Key, sign: int) -> Sample | None:
        """Sum (sign 1) or difference (-1) of two measures of one method."""
        ...

    def departures(self, key: Key) -> tuple[str, ...]:
        """Settings behind this number that are not the paper's, in words."""
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
            self._cells[key] = self.results.cell(key) if known else TableCell(key)
        return self._cells[key]

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
        return self._departures.of(self._cell(key))

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

    def departures(self, key: Key) -> tuple[str, ...]:
        return ()

    def display(self, study: str, label: str) -> str:
        return self.paper.display(label)
