"""A table before it is Markdown, LaTeX or CSV: cells in rows in blocks, with the best ones found and tested."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from reports.statistics import NO_SPREAD, Comparison, Sample, compare_with_best

MARKS = {
    "†": "AutoAttack warned about this model: its gradients may mislead the attack.",
    "‡": "A training collapsed (NaN or chance accuracy); it is counted out of n, not averaged in.",
    "§": "A training failed; it is missing from n.",
    "¶": "Not the paper's settings.",
    "≈": "A training ended near chance: clean accuracy not far above guessing. It is averaged in.",
}
USUAL_SEEDS = 3  # n is printed beside every cell that has another number of seeds


@dataclass(frozen=True)
class Key:
    """Which number a cell holds. `epsilon` and `checkpoint` None mean the study's own.

    `elsewhere` names studies that hold the same trials, for a store in which `study` is not.
    """

    study: str
    label: str
    measure: str
    epsilon: str | None = None
    checkpoint: str | None = None
    hyperparameters: tuple[tuple[str, Any], ...] = ()
    exact: bool = False  # a run with other hyperparameters must not fill this cell
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableCell:
    key: Key
    sample: Sample | None = None
    planned: int = 0  # seeds the study asks for; 0: the study does not have this cell
    warned: bool = False  # AutoAttack warned about at least one of these evaluations
    collapsed: int = 0
    failed: int = 0
    done: int = 0  # trained to the end, whether or not they have this number
    near_chance: int = 0  # trainings among the values that learned next to nothing
    seeds: tuple[int, ...] = ()
    label: str = ""  # the study's label behind the values, "" for a printed cell
    same_as: str = ""  # another label of the study that has the very same trainings and is tested for both
    printed: str = ""  # as another source printed it; shown instead of our own rounding
    best: bool = False
    tied: bool = False  # a test does not tell it from the best
    against_best: Comparison | None = None
    added: int = 0  # seeds that sweep.decide added one after the other: they are in no mean and no test
    departs: tuple[str, ...] = ()  # settings other than the paper's, in words; only a table of the paper asks
    rounding: Rounding = field(default_factory=lambda: Rounding())

    @property
    def text(self) -> str:
        if self.printed:
            return self.printed
        return "" if self.sample is None else self.rounding.text(self.sample)

    @property
    def hole(self) -> str:
        """What stands where no number is."""
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
        """In the order of the marks."""
        return self.warned, self.collapsed, self.failed, self.departs, self.near_chance

    @property
    def mark_words(self) -> str:
        """What the marks say of this very cell."""
        said = [f"{sign} {MARKS[sign]}" for sign in self.marks]
        return " ".join([*said, "; ".join(self.departs)]).strip()

    @property
    def lost(self) -> int:
        """Planned seeds that are in no mean, for good: collapsed or failed."""
        return self.collapsed + self.failed

    @property
    def untested(self) -> bool:
        """Whether it could not be compared with the best: a single seed, or no variation."""
        return self.against_best is not None and not self.best and self.against_best.significant is None

    @property
    def shown_n(self) -> int | None:
        return None if self.sample is None or self.printed or self.sample.n == USUAL_SEEDS else self.sample.n

    @property
    def n_text(self) -> str:
        return "" if self.shown_n is None else f" (n={self.shown_n})"


@dataclass(frozen=True)
class Rounding:
    """The spread to one significant digit, the mean to the spread's last digit.

    `decimals` is the least number of decimals of a mean (1: 20.0±0.2, 20.44±0.09, 20.4±1). With `digits`, a mean shows
    so many significant digits, without trailing zeros (3: -0.0123±0.02, -0.12±0.02).
    """

    decimals: int = 1
    digits: int | None = None

    def parts(self, sample: Sample) -> tuple[str, str]:
        spread, places = self._spread(sample)
        least = max(self.decimals if self.digits is None else 0, places)
        if self.digits is None or sample.mean == 0:
            return f"{sample.mean:.{least}f}", spread
        wanted = max(least, self.digits - 1 - math.floor(math.log10(abs(sample.mean))))
        text = f"{sample.mean:.{wanted}f}"
        while wanted > least and text.endswith("0"):
            wanted -= 1
            text = text[:-1]
        return text.removesuffix("."), spread

    def _spread(self, sample: Sample) -> tuple[str, int]:
        if not sample.spread_known:
            return "", 0
        if sample.std < NO_SPREAD:
            return "0", 0
        rounded = float(f"{sample.std:.0e}") if sample.std < 9.5 else round(sample.std)
        places = min(3, max(0, -math.floor(math.log10(rounded)))) if rounded else 0
        return f"{rounded:.{places}f}", places

    def text(self, sample: Sample) -> str:
        mean, spread = self.parts(sample)
        return f"{mean}±{spread}" if spread else mean


@dataclass(frozen=True)
class Column:
    header: str
    group: str = ""


@dataclass(frozen=True)
class Row:
    header: str
    cells: tuple[TableCell, ...]
    compared: bool = True  # else none of its cells is the best


@dataclass(frozen=True)
class Block:
    header: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """`compare` says which cells compete: those of a row, of a row within a column group, or of a block's column."""

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
        """Whether a study of the store has any of its cells."""
        return any(cell.planned for cell in self.cells())

    @property
    def filled(self) -> int:
        return sum(cell.sample is not None for cell in self.cells())


def with_best(table: Table) -> Table:
    """The table with the best cell of each family marked, and those that a test cannot tell from it."""
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
    """What a study's methods are ranked by: the first row of its main table."""
    return main.blocks[0].rows[0].cells[0].key.measure


def best_index(samples: Iterable[Sample | None], best: str = "highest") -> int | None:
    """The first of the best means; None when there is nothing to be better than."""
    known = {index: sample.mean for index, sample in enumerate(samples) if sample is not None}
    if len(known) < 2:
        return None
    top = min(known.values()) if best == "lowest" else max(known.values())
    return next((index for index, mean in known.items() if same_mean(mean, top)), None)


def same_mean(first: float, second: float) -> bool:
    """The same counts added in another order give means that differ in their last bits."""
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=NO_SPREAD)


def _mark(cells: list[TableCell], best: str) -> list[TableCell]:
    twins = _twins(cells)
    samples = [None if place in twins else cell.sample for place, cell in enumerate(cells)]
    index = best_index(samples, best)
    if index is None:
        return cells
    comparisons = compare_with_best(samples, index)
    winner = samples[index]
    marked = []
    for cell, comparison in zip(cells, comparisons, strict=True):
        # Equal means are all the best, as in the paper; the p-value column of a tie would be 1.
        is_best = cell.sample is not None and winner is not None and same_mean(cell.sample.mean, winner.mean)
        tied = comparison is not None and not is_best and _open(comparison, cells[index])
        marked.append(replace(cell, best=is_best, tied=tied, against_best=comparison))
    for place, other in twins.items():
        told = marked[other]
        marked[place] = replace(cells[place], best=told.best, tied=told.tied, against_best=told.against_best)
    return marked


def _open(comparison: Comparison, best: TableCell) -> bool:
    """A best with lost seeds looks better than it is: nothing is told from it."""
    return comparison.significant is False or (comparison.significant is True and best.lost > 0)


def _twins(cells: list[TableCell]) -> dict[int, int]:
    """Place of a cell -> that of the one with the very same trainings, where the family has both."""
    places = {_measured(cell, cell.label): place for place, cell in enumerate(cells) if cell.label}
    wanted = {place: _measured(cell, cell.same_as) for place, cell in enumerate(cells) if cell.same_as}
    return {place: places[one] for place, one in wanted.items() if one in places}


def _measured(cell: TableCell, label: str) -> tuple[str | None, ...]:
    return cell.key.study, label, cell.key.measure, cell.key.epsilon, cell.key.checkpoint


def signed(value: float, places: int = 1) -> str:
    """With its sign; what would round to 0.0 shows its first digit: an interval from -0.03 contains 0, one from +0.03
    does not."""
    if NO_SPREAD < abs(value) and not round(value, places):
        places = -math.floor(math.log10(abs(value)))
    return f"{round(value, places) + 0.0:+.{places}f}"


def p_text(p: float | None) -> str:
    """Three decimals as usual, more honest ends: never 0.000."""
    if p is None:
        return "–"
    if p < 0.001:
        return "<0.001"
    return f"{p:.3f}"
