"""Markdown tables, with special characters escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tabulate import tabulate

from reports.tables.table import Table, TableCell


def escape(text: str) -> str:
    """Escape a name from a study file or plug-in, so that it cannot end a cell or become markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Return the text as inline code. Backticks are dropped, and bars escaped because they would end the cell."""
    return f"`{' '.join(text.replace('`', '').split())}`".replace("|", "\\|")


def cell_text(cell: TableCell) -> str:
    if cell.sample is None:
        return cell.hole + cell.marks
    text = cell.text
    if cell.best:
        text = f"**{text}**"
    elif cell.tied:
        text = f"<u>{text}</u>"
    text += cell.marks
    return f"{text}{cell.n_text}"


def grid(rows: Sequence[Sequence[str]], headers: Sequence[str], numbers: bool = True) -> str:
    """Return a pipe table. With `numbers`, all but the first column and columns of words are right-aligned."""
    words = ("Verdict", "Trainings", "Method", "Measure", "Within noise")
    align = ["left" if not numbers or header in words else "right" for header in headers]
    align[0] = "left"
    return tabulate(rows, headers, tablefmt="pipe", colalign=align, disable_numparse=True)


def render(table: Table, level: int = 3, heading: str | None = None) -> str:
    """Return a table with its heading and caption. `heading` replaces the table's title."""
    title = heading or (f"Table {table.number}: {table.title}" if table.number else table.title)
    parts = [f"{'#' * level} {escape(title)}"]
    columns = [escape(column.header) for column in table.columns]
    groups = list(dict.fromkeys(column.group for column in table.columns if column.group))
    for block in table.blocks:
        rows = [[escape(row.header), *map(cell_text, row.cells)] for row in block.rows]
        if len(table.blocks) > 1 and not any(cell.planned for row in block.rows for cell in row.cells):
            parts.append(f"**{escape(block.header)}**: not run.")
            continue
        if block.header:
            parts.append(f"**{escape(block.header)}**")
        if groups:
            for group in groups:
                members = [i for i, column in enumerate(table.columns) if column.group == group]
                group_rows = [[row[0], *(row[1 + i] for i in members)] for row in rows]
                parts.append(grid(group_rows, [escape(group), *(columns[i] for i in members)]))
        else:
            parts.append(grid(rows, [escape(table.corner), *columns]))
    parts.append("<sub>" + " ".join(escape(note) for note in table.notes) + "</sub>")
    return "\n\n".join(parts)
