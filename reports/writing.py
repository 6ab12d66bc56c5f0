"""One report: load the records once, then write tables, numbers, figures and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reports.freshness import CACHE, NOTE
from reports.results import Results
from reports.store.load import Problem, ReportData, load
from reports.tables import document, latex, spreadsheet
from reports.tables.paper import paper_tables
from reports.tables.study import study_tables
from reports.tables.table import Table
from sweep.bulk import no_collection
from sweep.store.files import write_text
from sweep.store.folder import make_folder
from sweep.store.leases import held


def write(
    store_uri: str | Path,
    studies: Sequence[str] | None,
    out: Path,
    *,
    figures: bool = True,
    paper: str | Path | None = None,
) -> list[Path]:
    with no_collection():
        results = read(store_uri, studies, paper, out / CACHE)
        written, every = write_tables(results, out)
    running = bool(held(results.data.store))
    if figures:
        from reports.figures.draw import draw_all
        from reports.page.page import write_page

        drawn = draw_all(results, out / "plots")
        written += [*drawn, write_page(results, every, drawn, out, running=running)]
    elif running:  # with the figures of before: to draw them takes longer than a sweep should wait
        from reports.figures.draw import INDEX
        from reports.page.page import write_page

        before = [path for path in [out / "plots" / INDEX] if path.exists()]
        written.append(write_page(results, every, before, out, running=True))
    return written


def read(
    store_uri: str | Path, studies: Sequence[str] | None, paper: str | Path | None, cache: Path | None = None
) -> Results:
    return Results.beside_papers(_with_cells(load(store_uri, studies, cache)), paper)


def write_tables(results: Results, out: Path) -> tuple[list[Path], list[Table]]:
    """The tables in every form, as files and as what the page shows."""
    by_study = {study: study_tables(results, study) for study in results.data.manifests}
    from_paper = paper_tables(results)
    make_folder(out)
    (out / NOTE).unlink(missing_ok=True)
    every = from_paper + [table for tables in by_study.values() for table in tables]
    shown = [table for table in every if table.planned]
    written = [
        _text(out / "tables.md", document.write(results, by_study, from_paper)),
        _text(out / "tables.tex", latex.document(shown)),
        _text(out / "numbers.tex", latex.numbers(results, shown)),
        _text(out / "tables.csv", spreadsheet.cells(every)),
    ]
    return written, every


def _with_cells(data: ReportData) -> ReportData:
    """Without the studies that have no column to show, which are named among what was left out."""
    present = set(data.cells["study"])
    empty = [
        Problem(f"studies/{name}.json", "broken: it has no cell") for name in data.manifests if name not in present
    ]
    kept = {name: manifest for name, manifest in data.manifests.items() if name in present}
    return replace(data, manifests=kept, problems=[*data.problems, *empty])


def _text(path: Path, text: str) -> Path:
    write_text(path, text)
    return path
