"""The paper's seven tables as data: every cell as printed, with n, units, hyperparameters and contradictions.

In a table's file, `study`, `label`, `measure`, `epsilon` and `checkpoint` may stand at the table, a block, a row or a
column; together they say which number a cell is. `hyperparameters` stand beside a label, or by label elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from reports.statistics import Sample
from reports.tables.table import Block, Column, Key, Rounding, Row, Table, TableCell

FOLDER = Path(__file__).parent
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


@dataclass(frozen=True)
class Contradiction:
    number: int
    title: str
    paper: str
    decision: str


@dataclass(frozen=True)
class Published:
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
                    found.append(self._printed(_key(self.spec, block, row, column), text))
        return found

    def _printed(self, key: Key, text: str) -> Printed:
        match = PRINTED.fullmatch(text)
        if match is None:
            raise ValueError(f"table {self.number}: {text!r} is not a printed number")
        std = float(match[3]) if match[3] else float("nan")
        sample = Sample(float(match[2]), std, self.spec["n"] or 1)
        return Printed(self.number, key, text.strip("*"), match[1] is not None, sample)

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


@cache
def tables() -> tuple[Published, ...]:
    found = []
    for path in sorted(FOLDER.glob("table*.yaml")):
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
        found.append(Published(spec["table"], spec["name"], spec["source"], spec["unit"], spec))
    return tuple(sorted(found, key=lambda table: table.number))


@cache
def contradictions() -> tuple[Contradiction, ...]:
    entries = yaml.safe_load((FOLDER / "contradictions.yaml").read_text(encoding="utf-8"))
    return tuple(Contradiction(**entry) for entry in entries)
