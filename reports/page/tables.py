"""Tables as the page shows them: methods down, measures across, and every cell linked to its trials."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from reports.tables.table import Table, TableCell


@dataclass(frozen=True)
class PageCell:
    """A cell with its link and the text of its dialog."""

    cell: TableCell
    target: str  # id of the trials behind it, or ""
    values: str  # by seed, and what the marks mean

    @property
    def sort(self) -> str:
        return "" if self.cell.sample is None else f"{self.cell.sample.mean:.6f}"


@dataclass(frozen=True)
class Body:
    """A block of rows under one header."""

    header: str
    rows: tuple[tuple[str, tuple[PageCell, ...]], ...]


@dataclass(frozen=True)
class PageTable:
    """A table with methods down and measures across, whatever the paper's layout."""

    id: str
    title: str
    corner: str
    groups: tuple[tuple[str, int], ...]  # headers over several columns, with the number of columns
    heads: tuple[str, ...]
    bodies: tuple[Body, ...]
    notes: tuple[str, ...]
    best: str = "highest"


def page_table(table: Table, name: str, targets: dict[tuple[str, str], str]) -> PageTable:
    """Return a table for the page, turned so that methods run down.

    Args:
        name: Id of the table on the page.
        targets: Ids of the trials behind each (study, label).
    """
    title = f"Table {table.number}: {table.title}" if table.number else table.title

    def page_cell(cell: TableCell) -> PageCell:
        target = targets.get((cell.key.study, cell.label), "") if cell.label else ""
        values = ""
        if cell.sample is not None and cell.seeds:
            pairs = zip(cell.seeds, cell.sample.values, strict=False)
            values = ", ".join(f"seed {seed}: {value:.2f}" for seed, value in pairs)
        # Touch screens show no tooltip, so the dialog explains the marks too.
        values = ". ".join(filter(None, [values, cell.mark_words]))
        return PageCell(cell, target, values)

    if table.corner or table.compare == "column" or len(table.columns) == 1:  # methods already run down
        bodies = tuple(
            Body(block.header, tuple((row.header, tuple(map(page_cell, row.cells))) for row in block.rows))
            for block in table.blocks
        )
        heads = tuple(column.header for column in table.columns)
        return PageTable(name, title, table.corner or "Method", (), heads, bodies, table.notes, table.best)
    rows = [(block.header, row) for block in table.blocks for row in block.rows]
    bodies = tuple(
        Body(
            group,
            tuple(
                (column.header, tuple(page_cell(row.cells[index]) for _, row in rows))
                for index, column in enumerate(table.columns)
                if column.group == group
            ),
        )
        for group in dict.fromkeys(column.group for column in table.columns)
    )
    spans = tuple((block.header, len(block.rows)) for block in table.blocks)
    groups = spans if any(header for header, _ in spans) else ()
    # Rows of the paper's layout are columns here.
    notes = tuple(re.sub(r"(of its|within the) row", r"\1 column", note) for note in table.notes)
    return PageTable(name, title, "Method", groups, tuple(row.header for _, row in rows), bodies, notes, table.best)


def shorter(page: PageTable, study: str) -> PageTable:
    """Return the table without the study's name in its title, for use under the study's own heading."""
    title = page.title.removeprefix(f"{study}: ")
    return replace(page, title=title[:1].upper() + title[1:])
