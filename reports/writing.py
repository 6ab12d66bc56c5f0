"""One report: load the records once, then write tables, numbers, figures and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reports import csv_files, latex, markdown
from reports.layout import Table
from reports.measures import Results
from reports.records import load
from reports.tables import paper_tables, study_tables


def write(store_uri: str | Path, studies: Sequence[str] | None, out: Path, *, figures: bool = True) -> list[Path]:
    data = load(store_uri, studies)
    results = Results(data)
    by_study = {study: study_tables(results, study) for study in data.manifests}
    paper = paper_tables(results)
    out.mkdir(parents=True, exist_ok=True)
    every = paper + [table for tables in by_study.values() for table in tables]
    written = [
        _text(out / "tables.md", markdown.write(results, by_study, paper)),
        _text(out / "tables.tex", latex.document(shown(every))),
        _text(out / "numbers.tex", latex.numbers(results, shown(every))),
        _text(out / "tables.csv", csv_files.cells(every)),
    ]
    if figures:
        from reports.figures import draw_all
        from reports.page import write_page

        drawn = draw_all(data, out / "plots")
        written += [*drawn, write_page(data, every, drawn, out)]
    return written


def shown(tables: Sequence[Table]) -> list[Table]:
    """A table of the paper none of whose studies was planned has nothing to print."""
    return [table for table in tables if table.filled or any(cell.planned for cell in table.cells())]


def _text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
