"""Write one report: load the records once, then write tables, numbers, figures and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reports.analysis.results import Results
from reports.store.freshness import CACHE, NOTE
from reports.store.load import Problem, ReportData, load
from reports.tables import document, latex, spreadsheet
from reports.tables.paper import paper_tables
from reports.tables.study import study_tables
from reports.tables.table import Table
from sweep.bulk import no_collection
from sweep.store.files import write_text
from sweep.store.folder import make_folder
from sweep.store.lease_upkeep import held


def write(
    store_uri: str | Path,
    studies: Sequence[str] | None,
    out: Path,
    *,
    figures: bool = True,
    paper: str | Path | None = None,
) -> list[Path]:
    """Write a report to `out` and return the paths of its files.

    Without figures the page is still refreshed while the study runs.
    """
    with no_collection():
        results = read(store_uri, studies, paper, out / CACHE)
        written, tables = write_tables(results, out)
    running = bool(held(results.data.store))
    if figures:
        from reports.figures.draw import draw_all
        from reports.page.page import write_page

        drawn = draw_all(results, out / "plots")
        written += [*drawn, write_page(results, tables, drawn, out, running=running)]
    elif running:  # with the previous figures: drawing takes longer than a sweep should wait
        from reports.figures.draw import INDEX
        from reports.page.page import write_page

        previous = [path for path in [out / "plots" / INDEX] if path.exists()]
        written.append(write_page(results, tables, previous, out, running=True))
    return written


def read(
    store_uri: str | Path, studies: Sequence[str] | None, paper: str | Path | None, cache: Path | None = None
) -> Results:
    """Load the records to report on; `cache` is a folder for rows that were read before."""
    return Results.beside_papers(_with_cells(load(store_uri, studies, cache)), paper)


def write_tables(results: Results, out: Path) -> tuple[list[Path], list[Table]]:
    """Write the tables in every format; return the paths and the tables for the page."""
    by_study = {study: study_tables(results, study) for study in results.data.manifests}
    from_paper = paper_tables(results)
    make_folder(out)
    (out / NOTE).unlink(missing_ok=True)
    tables = from_paper + [table for of_study in by_study.values() for table in of_study]
    planned = [table for table in tables if table.planned]
    written = [
        _text(out / "tables.md", document.write(results, by_study, from_paper)),
        _text(out / "tables.tex", latex.document(planned)),
        _text(out / "numbers.tex", latex.numbers(results, planned)),
        _text(out / "tables.csv", spreadsheet.cells(tables)),
    ]
    return written, tables


def _with_cells(data: ReportData) -> ReportData:
    """Drop studies that have no column to show, and add them to the problems."""
    present = set(data.cells["study"])
    empty = [
        Problem(f"studies/{name}.json", "broken: it has no cell") for name in data.manifests if name not in present
    ]
    manifests = {name: manifest for name, manifest in data.manifests.items() if name in present}
    return replace(data, manifests=manifests, problems=[*data.problems, *empty])


def _text(path: Path, text: str) -> Path:
    write_text(path, text)
    return path
