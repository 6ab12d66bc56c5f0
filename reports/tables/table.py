"""The model of a table, independent of its format: cells in rows in blocks, with the best cells marked and tested."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from reports.analysis.statistics import NO_SPREAD, Comparison, Sample, compare_with_best

MARKS = {
    "†": "AutoAttack warned about this model: its gradients may mislead the attack.",
    "‡": "A training collapsed (NaN or chance accuracy); it is counted out of n, not averaged in.",
    "§": "A training failed; it is missing from n.",
    "¶": "Not the paper's settings.",
    "≈": "A training ended near chance: clean accuracy not far above guessing. It is averaged in.",
}
USUAL_SEEDS = 3  # cells with another number of seeds show their n


@dataclass(frozen=True)
class Key:
    """The identity of a cell's number. None for `epsilon` and `checkpoint` means the study's own.

    `elsewhere` names studies with the same trials, used if `study` is not in the store.
    """

    study: str
    label: str
    measure: str
    epsilon: str | None = None
    checkpoint: str | None = None
    hyperparameters: tuple[tuple[str, Any], ...] = ()
    exact: bool = False  # trials with other hyperparameters must not fill this cell
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableCell:
    """A cell with the sample behind it, the counts of its seeds, and the outcome of the test against the best."""

    key: Key
    sample: Sample | None = None
    planned: int = 0  # seeds that the study asks for; 0 if the study does not have this cell
    warned: bool = False  # AutoAttack warned about at least one of these evaluations
    collapsed: int = 0
    failed: int = 0
    done: int = 0  # finished trainings, with or without this number
    near_chance: int = 0  # trainings in the sample whose clean accuracy is near chance
    seeds: tuple[int, ...] = ()
    label: str = ""  # the study's label, or "" for a printed cell
    same_as: str = ""  # a label of the study with the same trainings, which is tested for both
    printed: str = ""  # the text of another source, used instead of our own rounding
    best: bool = False
    tied: bool = False  # no significant difference from the best
    against_best: Comparison | None = None
    added: int = 0  # seeds added by sweep.decide, which enter no mean and no test
    departs: tuple[str, ...] = ()  # departures from the paper's settings, in words; only in tables of a paper
    rounding: Rounding = field(default_factory=lambda: Rounding())

    @property
    def text(self) -> str:
        if self.printed:
            return self.printed
        return "" if self.sample is None else self.rounding.text(self.sample)

    @property
    def hole(self) -> str:
        """The text of a cell without a number."""
        if self.sample is not None:
            return ""
        if self.planned and self.collapsed == self.planned:
            return "collapsed"
        if self.planned and self.failed == self.planned:
            return "failed"
        return f"0/{self.planned}" if self.planned else "—"

    @property
    def marks(self) -> str:
        return "".join(sign for sign, applies in zip(MARKS, self._reasons, strict=True) if applies)

    @property
    def _reasons(self) -> tuple[object, ...]:
        """The values that decide on the marks, in the order of MARKS."""
        return self.warned, self.collapsed, self.failed, self.departs, self.near_chance

    @property
    def mark_words(self) -> str:
        """The meaning of this cell's marks."""
        meanings = [f"{sign} {MARKS[sign]}" for sign in self.marks]
        return " ".join([*meanings, "; ".join(self.departs)]).strip()

    @property
    def lost(self) -> int:
        """The number of planned seeds that collapsed or failed, and so are in no mean."""
        return self.collapsed + self.failed

    @property
    def untested(self) -> bool:
        """True if no test against the best was possible, for lack of seeds or of variation."""
        return self.against_best is not None and not self.best and self.against_best.significant is None

    @property
    def shown_n(self) -> int | None:
        return None if self.sample is None or self.printed or self.sample.n == USUAL_SEEDS else self.sample.n

    @property
    def n_text(self) -> str:
        return "" if self.shown_n is None else f" (n={self.shown_n})"


@dataclass(frozen=True)
class Rounding:
    """A rounding rule: the spread to one significant digit, the mean to the spread's last digit.

    `decimals` is the least number of decimals of a mean (1: 20.0±0.2, 20.44±0.09, 20.4±1). `digits`, if given, is the
    number of significant digits of a mean, without trailing zeros (3: -0.0123±0.02, -0.12±0.02).
    """

    decimals: int = 1
    digits: int | None = None

    def parts(self, sample: Sample) -> tuple[str, str]:
        """Return the mean and the spread as text; the spread is "" if unknown."""
        spread, decimals = self._spread(sample)
        least = max(self.decimals if self.digits is None else 0, decimals)
        if self.digits is None or sample.mean == 0:
            return f"{sample.mean:.{least}f}", spread
        decimals = max(least, self.digits - 1 - math.floor(math.log10(abs(sample.mean))))
        text = f"{sample.mean:.{decimals}f}"
        while decimals > least and text.endswith("0"):
            decimals -= 1
            text = text[:-1]
        return text.removesuffix("."), spread

    def _spread(self, sample: Sample) -> tuple[str, int]:
        if not sample.spread_known:
            return "", 0
        if sample.std < NO_SPREAD:
            return "0", 0
        rounded = float(f"{sample.std:.0e}") if sample.std < 9.5 else round(sample.std)
        decimals = min(3, max(0, -math.floor(math.log10(rounded)))) if rounded else 0
        return f"{rounded:.{decimals}f}", decimals

    def text(self, sample: Sample) -> str:
        mean, spread = self.parts(sample)
        return f"{mean}±{spread}" if spread else mean


@dataclass(frozen=True)
class Column:
    """The header of a column, and of the group of columns that it belongs to."""

    header: str
    group: str = ""


@dataclass(frozen=True)
class Row:
    """A row of cells."""

    header: str
    cells: tuple[TableCell, ...]
    compared: bool = True  # False: no cell of the row is marked as the best


@dataclass(frozen=True)
class Block:
    """Rows under one header."""

    header: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """A table. `compare` is the family of cells among which the best is marked.

    Families are the cells of a row, of a row within a column group ("group"), or of a column within a block.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    blocks: tuple[Block, ...]
    best: Literal["highest", "lowest", "none"] = "highest"
    compare: Literal["row", "group", "column", "none"] = "row"
    corner: str = ""
    number: int | None = None
    notes: tuple[str, ...] = ()

    def cells(self) -> Iterator[TableCell]:
        for block in self.blocks:
            for row in block.rows:
                yield from row.cells

    @property
    def planned(self) -> bool:
        """True if a study of the store has any of its cells."""
        return any(cell.planned for cell in self.cells())

    @property
    def filled(self) -> int:
        """The number of cells with a sample."""
        return sum(cell.sample is not None for cell in self.cells())


def with_best(table: Table) -> Table:
    """Return the table with the best cells of each family marked, and those not significantly different from it."""
    if table.best == "none" or table.compare == "none":
        return table
    blocks = []
    for block in table.blocks:
        grid = [list(row.cells) for row in block.rows]
        for family in _families(table, grid):
            if table.compare != "column" and not block.rows[family[0][0]].compared:
                continue
            marked = _mark([grid[y][x] for y, x in family], table.best)
            for (y, x), cell in zip(family, marked, strict=True):
                grid[y][x] = cell
        rows = tuple(replace(row, cells=tuple(cells)) for row, cells in zip(block.rows, grid, strict=True))
        blocks.append(replace(block, rows=rows))
    return replace(table, blocks=tuple(blocks))


def _families(table: Table, grid: list[list[TableCell]]) -> Iterator[list[tuple[int, int]]]:
    if table.compare == "column":
        for x in range(len(table.columns)):
            yield [(y, x) for y in range(len(grid))]
        return
    groups = dict.fromkeys(column.group if table.compare == "group" else "" for column in table.columns)
    for y in range(len(grid)):
        for group in groups:
            columns = enumerate(table.columns)
            yield [(y, x) for x, column in columns if table.compare == "row" or column.group == group]


def headline_measure(main: Table) -> str:
    """Return the measure by which a study's methods are ranked: the first row of its main table."""
    return main.blocks[0].rows[0].cells[0].key.measure


def best_index(samples: Iterable[Sample | None], best: str = "highest") -> int | None:
    """Return the index of the first sample with the best mean, or None if there are fewer than two samples."""
    means = {index: sample.mean for index, sample in enumerate(samples) if sample is not None}
    if len(means) < 2:
        return None
    top = min(means.values()) if best == "lowest" else max(means.values())
    return next((index for index, mean in means.items() if same_mean(mean, top)), None)


def same_mean(first: float, second: float) -> bool:
    """Return True for equal means. Sums in another order may differ in the last bits."""
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=NO_SPREAD)


def _mark(cells: list[TableCell], best: str) -> list[TableCell]:
    twins = _twins(cells)
    samples = [None if i in twins else cell.sample for i, cell in enumerate(cells)]
    index = best_index(samples, best)
    if index is None:
        return cells
    comparisons = compare_with_best(samples, index)
    winner = samples[index]
    marked = []
    for cell, comparison in zip(cells, comparisons, strict=True):
        # All cells with the best mean are the best, as in the paper.
        is_best = cell.sample is not None and winner is not None and same_mean(cell.sample.mean, winner.mean)
        tied = comparison is not None and not is_best and _undecided(comparison, cells[index])
        marked.append(replace(cell, best=is_best, tied=tied, against_best=comparison))
    for i, twin in twins.items():
        tested = marked[twin]
        marked[i] = replace(cells[i], best=tested.best, tied=tested.tied, against_best=tested.against_best)
    return marked


def _undecided(comparison: Comparison, best: TableCell) -> bool:
    """Return True if the test is not significant, or the best has lost seeds and so looks better than it is."""
    return comparison.significant is False or (comparison.significant is True and best.lost > 0)


def _twins(cells: list[TableCell]) -> dict[int, int]:
    """Return, by index of a cell, the index of the cell with the same trainings, if the family has both."""
    indices = {_identity(cell, cell.label): i for i, cell in enumerate(cells) if cell.label}
    twins = {i: _identity(cell, cell.same_as) for i, cell in enumerate(cells) if cell.same_as}
    return {i: indices[twin] for i, twin in twins.items() if twin in indices}


def _identity(cell: TableCell, label: str) -> tuple[str | None, ...]:
    return cell.key.study, label, cell.key.measure, cell.key.epsilon, cell.key.checkpoint


def signed(value: float, places: int = 1) -> str:
    """Return the value with its sign, rounded to `places` decimals.

    A value that would round to 0.0 shows its first digit, because an interval from -0.03 contains 0 and one from +0.03
    does not.
    """
    if NO_SPREAD < abs(value) and not round(value, places):
        places = -math.floor(math.log10(abs(value)))
    return f"{round(value, places) + 0.0:+.{places}f}"


def p_text(p: float | None) -> str:
    """Return a p-value with three decimals, or <0.001."""
    if p is None:
        return "–"
    if p < 0.001:
        return "<0.001"
    return f"{p:.3f}"
