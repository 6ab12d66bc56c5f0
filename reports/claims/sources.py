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

    def sample(
        self, study: str, label: str, measure: str, epsilon: str | None = None, checkpoint: str | None = None
    ) -> Sample | None: ...

    def combined(self, study: str, label: str, first: str, second: str, sign: int) -> Sample | None:
        """Sum (sign 1) or difference (-1) of two measures of one method."""
        ...

    def departures(
        self, study: str, label: str, measure: str, epsilon: str | None = None, checkpoint: str | None = None
    ) -> tuple[str, ...]:
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
        if key not in self._cells:
            self._cells[key] = self.results.cell(key)
        return self._cells[key]

    def sample(
        self, study: str, label: str, measure: str, epsilon: str | None = None, checkpoint: str | None = None
    ) -> Sample | None:
        if label not in self.results.labels.get(study, {}):
            return None
        return self._cell(Key(study, label, measure, epsilon, checkpoint)).sample

    def combined(self, study: str, label: str, first: str, second: str, sign: int) -> Sample | None:
        """Seed by seed, over the seeds that have both."""
        if label not in self.results.labels.get(study, {}):
            return None
        by_seed = []
        for measure in (first, second):
            cell = self._cell(Key(study, label, measure))
            by_seed.append(dict(zip(cell.seeds, cell.sample.values if cell.sample else (), strict=True)))
        seeds = [seed for seed in by_seed[0] if seed in by_seed[1]]
        return Sample.of([by_seed[0][seed] + sign * by_seed[1][seed] for seed in seeds]) if seeds else None

    def departures(
        self, study: str, label: str, measure: str, epsilon: str | None = None, checkpoint: str | None = None
    ) -> tuple[str, ...]:
        if label not in self.results.labels.get(study, {}):
            return ()
        return self._departures.of(self._cell(Key(study, label, measure, epsilon, checkpoint)))

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

    def sample(
        self, study: str, label: str, measure: str, epsilon: str | None = None, checkpoint: str | None = None
    ) -> Sample | None:
        for radius in (epsilon,) if epsilon else ("", self.paper.epsilon):
            found = self._samples.get((study, label, measure, radius))
            if found is not None:
                return found
        return None

    def combined(self, study: str, label: str, first: str, second: str, sign: int) -> Sample | None:
        """From the two spreads as if they were independent: the paper prints no single seeds."""
        one, two = self.sample(study, label, first), self.sample(study, label, second)
        if one is None or two is None:
            return None
        return Sample(one.mean + sign * two.mean, math.hypot(one.std, two.std), min(one.n, two.n))

    def departures(
        self, study: str, label: str, measure: str, epsilon: str | None = None, checkpoint: str | None = None
    ) -> tuple[str, ...]:
        return ()

    def display(self, study: str, label: str) -> str:
        return self.paper.display(label)
