"""A paper as data: general facts, tables with every cell as printed, claims and contradictions.

In a table's file, the table, a block, a row or a column may set `study`, `label`, `measure`, `epsilon` and
`checkpoint`; together they identify the number in a cell. `hyperparameters` are given next to a label, or by label
elsewhere. `claim_label` is the label that claims use for a column, if it differs from the column's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from reports.analysis.statistics import Sample
from reports.tables.table import Block, Column, Key, Rounding, Row, Table, TableCell
from trainers.config import Strict

PRINTED = re.compile(r"(\*\*)?(-?\d+(?:\.\d+)?)(?:±(\d+(?:\.\d+)?))?(\*\*)?")
SHARED = ("study", "label", "measure", "epsilon", "checkpoint")


@dataclass(frozen=True)
class Printed:
    """A cell of the paper."""

    table: int
    key: Key
    text: str  # without the ** of bold
    bold: bool
    sample: Sample
    claim_label: str


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper; `spec` is the content of its file."""

    number: int
    name: str
    source: str  # the \\label in the paper's source
    unit: str
    spec: dict[str, Any]

    @property
    def rounding(self) -> Rounding:
        return Rounding(self.spec.get("decimals", 1), self.spec.get("digits"))

    def table(self, fill: Callable[[Key, Rounding], TableCell]) -> Table:
        """Return a table in the paper's layout, with each cell made by `fill` from its key and rounding."""
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
        cells = []
        for block in self.spec["blocks"]:
            for row in block["rows"]:
                for column, text in zip(self.spec["columns"], row["cells"], strict=True):
                    key = _key(self.spec, block, row, column)
                    cells.append(self._printed(key, text, column.get("claim_label", key.label)))
        return cells

    def _printed(self, key: Key, text: str, claim_label: str) -> Printed:
        match = PRINTED.fullmatch(text)
        if match is None:
            raise ValueError(f"table {self.number}: {text!r} is not a number such as 51.9, 51.9±0.5 or **51.9**")
        std = float(match[3]) if match[3] else float("nan")
        sample = Sample(float(match[2]), std, self.spec["n"] or 1)
        return Printed(self.number, key, text.strip("*"), match[1] is not None, sample, claim_label)

    def as_printed(self) -> Table:
        """Return the table with the paper's own numbers, rendered by our layout."""
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
        level_hyperparameters = level.get("hyperparameters") or {}
        if "label" in level:
            own = level_hyperparameters or own
        else:
            by_label |= level_hyperparameters
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
    """A place where the paper contradicts itself or the code it used, and our decision."""

    number: int
    title: str
    paper: str
    decision: str


class Loss(Strict):
    """One side of a ratio of margins."""

    name: str  # in a header
    words: str  # in a sentence
    label: str  # the label whose margins are used
    methods: tuple[str, ...]  # all methods that train with this loss


class MarginRatio(Strict):
    """The ratio of the margins of two losses: `over` divided by `under`."""

    over: Loss
    under: Loss


class Effect(Strict):
    """A figure of the effect of one hyperparameter while another is held fixed."""

    name: str
    title: str
    varied: str
    axis: str
    held: str
    methods: tuple[str, ...]
    study: str  # the study with such rows
    baseline_at: float | None = None  # value that equals the baseline; None draws the baseline as a horizontal line
    caption: str


class Together(Strict):
    """A figure of several studies in one picture."""

    name: str  # stem of its files
    figure: str  # the figure drawn for each study
    title: str
    studies: tuple[str, ...]
    caption: str = ""


class Paper(Strict):
    """The content of paper.yaml and of the other files in its folder."""

    name: str
    folder: Path
    title: str
    authors: str
    year: int
    default: bool = False  # used by reports that name no paper
    epsilon: str  # radius of tables that give none
    checkpoint: str  # the epoch that the paper evaluates
    baseline: str  # the method that others are tested against
    proposed: str
    method_order: tuple[str, ...] = ()  # of columns; methods not listed follow by name
    worst_of: tuple[str, ...] = ()  # attacks whose lowest accuracy is the measure `worst`
    margin_ratio: MarginRatio | None = None
    effects: tuple[Effect, ...] = ()
    together: tuple[Together, ...] = ()
    theory: tuple[str, ...] = ()  # figures that need no records
    displays: dict[str, str] = {}  # names of labels, if not the label in capitals
    symbols: dict[str, str] = {}  # by hyperparameter
    looks: dict[str, tuple[str, str, str]] = {}  # colour, marker and dash by method
    remarks: dict[str, str] = {}  # by figure, appended to its caption
    numbers: dict[str, str | dict[str, str]] = {}  # figure numbers in the paper, by figure or by figure and study

    tables: tuple[PaperTable, ...]
    settings: dict[str, tuple[str, ...]] = {}  # groups of studies, by the name that claims use
    claims: tuple[dict[str, Any], ...] = ()
    contradictions: tuple[Contradiction, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Paper:
        """Read a paper's folder. Raise ValueError, KeyError or TypeError if a file is invalid."""
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
        """The studies that its tables name."""
        return frozenset(cell.key.study for table in self.tables for cell in table.cells())

    def __hash__(self) -> int:
        return hash(self.folder)

    def bare(self) -> Paper:
        """Return the paper without its numbers and claims, for the order, names and colours of other studies."""
        shared = ("epsilon", "checkpoint", "baseline", "method_order", "worst_of", "displays", "symbols", "looks")
        facts = {name: getattr(self, name) for name in shared}
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
        """Return the figure's number in the paper as the last sentence of a caption, or "" if the paper has none."""
        numbers = self.numbers.get(figure, "")
        if isinstance(numbers, dict):
            numbers = numbers.get(study or "", "")
        plural = "s" if re.search(r",| and |-", numbers) else ""
        return f"(Figure{plural} {numbers} of the paper.)" if numbers else ""

    def printed(self, measure: str) -> list[Printed]:
        """Return all printed cells with this measure."""
        return [cell for table in self.tables for cell in table.cells() if cell.key.measure == measure]


def _content(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
