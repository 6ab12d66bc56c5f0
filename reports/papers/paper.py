"""A paper as data: what it is about, its tables with every cell as printed, its claims and its contradictions.

In a table's file, `study`, `label`, `measure`, `epsilon` and `checkpoint` may stand at the table, a block, a row or a
column; together they say which number a cell is. `hyperparameters` stand beside a label, or by label elsewhere.
`claim_label` is the label by which claims ask for a column, where a study has another than the column.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from reports.statistics import Sample
from reports.tables.table import Block, Column, Key, Rounding, Row, Table, TableCell
from trainers.config import Strict

PRINTED = re.compile(r"(\*\*)?(-?\d+(?:\.\d+)?)(?:±(\d+(?:\.\d+)?))?(\*\*)?")
SHARED = ("study", "label", "measure", "epsilon", "checkpoint")


@dataclass(frozen=True)
class Printed:
    """One cell of the paper."""

    table: int
    key: Key
    text: str  # without the marks of bold
    bold: bool
    sample: Sample
    claim_label: str


@dataclass(frozen=True)
class PaperTable:
    number: int
    name: str
    source: str  # the paper's own \\label
    unit: str
    spec: dict[str, Any]

    @property
    def rounding(self) -> Rounding:
        return Rounding(self.spec.get("decimals", 1), self.spec.get("digits"))

    def table(self, fill: Callable[[Key, Rounding], TableCell]) -> Table:
        """The paper's layout, each cell filled by `fill`."""
        spec, rounding = self.spec, self.rounding
        blocks = []
        for block in spec["blocks"]:
            rows = []
            for row in block["rows"]:
                keys = [_key(spec, block, row, column) for column in spec["columns"]]
                rows.append(Row(row["header"], tuple(fill(key, rounding) for key in keys)))
            blocks.append(Block(block["header"], tuple(rows)))
        columns = tuple(Column(column["header"], column.get("group", "")) for column in spec["columns"])
        return Table(
            self.name, spec["title"], columns, tuple(blocks), spec["best"], spec["compare"], number=self.number
        )

    def cells(self) -> list[Printed]:
        found = []
        for block in self.spec["blocks"]:
            for row in block["rows"]:
                for column, text in zip(self.spec["columns"], row["cells"], strict=True):
                    key = _key(self.spec, block, row, column)
                    found.append(self._printed(key, text, column.get("claim_label", key.label)))
        return found

    def _printed(self, key: Key, text: str, claim_label: str) -> Printed:
        match = PRINTED.fullmatch(text)
        if match is None:
            raise ValueError(f"table {self.number}: {text!r} is not a printed number")
        std = float(match[3]) if match[3] else float("nan")
        sample = Sample(float(match[2]), std, self.spec["n"] or 1)
        return Printed(self.number, key, text.strip("*"), match[1] is not None, sample, claim_label)

    def as_printed(self) -> Table:
        """The paper's table made from the paper's numbers, through our own layout."""
        cells = iter(self.cells())

        def fill(key: Key, rounding: Rounding) -> TableCell:
            printed = next(cells)
            return TableCell(key, printed.sample, self.spec["n"] or 1, printed=printed.text, rounding=rounding)

        return self.table(fill)


def _key(spec: dict[str, Any], block: dict[str, Any], row: dict[str, Any], column: dict[str, Any]) -> Key:
    merged: dict[str, Any] = {}
    own: dict[str, Any] = {}
    by_label: dict[str, dict[str, Any]] = {}
    for level in (spec, block, row, column):
        merged |= {name: level[name] for name in SHARED if name in level}
        given = level.get("hyperparameters") or {}
        if "label" in level:
            own = given or own
        else:
            by_label |= given
    hyperparameters = own or by_label.get(merged["label"], {})
    if merged["measure"] in ("clean", "margin", "margin_ratio"):
        merged.pop("epsilon", None)
    studies = merged["study"] if isinstance(merged["study"], list) else [merged["study"]]
    return Key(
        str(studies[0]),
        str(merged["label"]),
        str(merged["measure"]),
        merged.get("epsilon"),
        merged.get("checkpoint"),
        tuple(sorted(hyperparameters.items())),
        bool(spec.get("exact")),
        tuple(map(str, studies[1:])),
    )


class Contradiction(Strict):
    number: int
    title: str
    paper: str
    decision: str


class Loss(Strict):
    """One side of a ratio of margins."""

    name: str  # in a header
    words: str  # in a sentence
    label: str  # the row of a study whose margins count
    methods: tuple[str, ...]  # all whose margins over training are of this loss


class MarginRatio(Strict):
    over: Loss
    under: Loss


class Effect(Strict):
    """A figure of what one hyperparameter does while another is held."""

    name: str
    title: str
    varied: str
    axis: str
    held: str
    methods: tuple[str, ...]
    study: str  # that has such rows
    baseline_at: float | None = None  # the value at which a method is the baseline; else this is a line across
    caption: str


class Together(Strict):
    """A figure of several studies in one picture."""

    name: str  # of its files
    figure: str  # what is drawn of each study
    title: str
    studies: tuple[str, ...]
    caption: str = ""


class Paper(Strict):
    """paper.yaml, with what stands in the other files of the folder."""

    name: str
    folder: Path
    title: str
    authors: str
    year: int
    default: bool = False  # of a report for which no paper was named
    epsilon: str  # the radius where none is named
    checkpoint: str  # the paper's choice of the epoch
    baseline: str  # the method that the others are tested against
    proposed: str
    method_order: tuple[str, ...] = ()  # of columns; what is not here follows by name
    worst_of: tuple[str, ...] = ()  # attacks, the least of which is the measure `worst`
    margin_ratio: MarginRatio | None = None
    effects: tuple[Effect, ...] = ()
    together: tuple[Together, ...] = ()
    theory: tuple[str, ...] = ()  # figures that need no records
    displays: dict[str, str] = {}  # of labels whose name is not the label in capitals
    symbols: dict[str, str] = {}  # of hyperparameters
    looks: dict[str, tuple[str, str, str]] = {}  # of methods in figures: colour, marker, dash
    remarks: dict[str, str] = {}  # by figure, to follow its caption
    numbers: dict[str, str | dict[str, str]] = {}  # the paper's own, by figure, and by study where these differ

    tables: tuple[PaperTable, ...]
    settings: dict[str, tuple[str, ...]] = {}  # studies by the name that claims have for them
    claims: tuple[dict[str, Any], ...] = ()
    contradictions: tuple[Contradiction, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Paper:
        specs = [_content(path) for path in folder.glob("table*.yaml")]
        tables = [PaperTable(spec["table"], spec["name"], spec["source"], spec["unit"], spec) for spec in specs]
        return cls(
            name=folder.name,
            folder=folder,
            tables=tuple(sorted(tables, key=lambda table: table.number)),
            contradictions=_content(folder / "contradictions.yaml") or (),
            **_content(folder / "claims.yaml") or {},
            **_content(folder / "paper.yaml"),
        )

    @cached_property
    def studies(self) -> frozenset[str]:
        """Those of its tables."""
        return frozenset(cell.key.study for table in self.tables for cell in table.cells())

    def __hash__(self) -> int:
        return hash(self.folder)

    def bare(self) -> Paper:
        """Its order, names and colours without anything that it printed or claims: for studies that name no paper."""
        kept = ("epsilon", "checkpoint", "baseline", "method_order", "worst_of", "displays", "symbols", "looks")
        facts = {name: getattr(self, name) for name in kept}
        return Paper(name="", folder=Path(), title="", authors="", year=0, proposed="", tables=(), **facts)

    @property
    def citation(self) -> str:
        return f"{self.authors}: {self.title} ({self.year})."

    def has_method(self, method: str) -> bool:
        """Return whether the paper has the base method, and so values of its hyperparameters."""
        return bool(self.tables) and method.partition("+")[0] in self.method_order

    def display(self, label: str) -> str:
        return self.displays.get(label, label.upper())

    def figure_number(self, figure: str, study: str | None) -> str:
        """Which figure of the paper this is, as the last sentence of its caption; nothing where the paper has none."""
        numbers = self.numbers.get(figure, "")
        if isinstance(numbers, dict):
            numbers = numbers.get(study or "", "")
        several = "s" if re.search(r",| and |-", numbers) else ""
        return f"(Figure{several} {numbers} of the paper.)" if numbers else ""

    def printed(self, measure: str) -> list[Printed]:
        return [cell for table in self.tables for cell in table.cells() if cell.key.measure == measure]


def _content(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
