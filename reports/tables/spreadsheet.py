"""tables.csv: one line per table cell, with its values, tests and marks."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable
from typing import Any

from reports.analysis.statistics import interval
from reports.tables.table import Table, TableCell

NUMBER = re.compile(r"-?[\d.]+(±[\d.]+)?")
HEADER = (
    *("table", "number", "block", "row", "column", "study", "label", "measure", "epsilon", "checkpoint"),
    *("shown", "mean", "std", "n", "planned", "low95", "high95", "seeds", "values", "best", "tied"),
    *("difference_to_best", "p_student", "p_welch", "p_t3", "hedges_g"),
    *("autoattack_warned", "collapsed", "failed", "departs_from_paper"),
)


def cells(tables: Iterable[Table]) -> str:
    """Return the content of tables.csv."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for table in tables:
        for block in table.blocks:
            for row in block.rows:
                for column, cell in zip(table.columns, row.cells, strict=True):
                    position = (table.name, table.number, block.header, row.header, column.header)
                    writer.writerow([_plain(value) for value in (*position, *_line(cell))])
    return text.getvalue()


def _line(cell: TableCell) -> tuple[Any, ...]:
    key, sample, test = cell.key, cell.sample, cell.against_best
    bounds = interval(sample) if sample is not None else None
    summary = (
        (cell.text, sample.mean, sample.std if sample.spread_known else None, sample.n)
        if sample is not None
        else (None, None, None, 0)
    )
    tests = (test.difference, test.student, test.welch, test.t3, test.hedges_g) if test is not None else (None,) * 5
    return (
        *(key.study, cell.label or key.label, key.measure, key.epsilon, key.checkpoint),
        *summary,
        cell.planned,
        *(bounds or (None, None)),
        json.dumps(cell.seeds),
        json.dumps([float(f"{value:.6g}") for value in sample.values] if sample is not None else []),
        int(cell.best),
        None if cell.untested else int(cell.tied),
        *tests,
        int(cell.warned),
        cell.collapsed,
        cell.failed,
        "; ".join(cell.departs),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.10g}"
    # A spreadsheet could run a name with a leading sign as a formula. Numbers may have a sign.
    if isinstance(value, str) and re.match(r"[=+@\t\r-]", value) and not NUMBER.fullmatch(value):
        return "'" + value
    return "" if value is None else value
