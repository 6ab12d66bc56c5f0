"""One report: load the records once, then write tables, numbers, figures and the page."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reports.papers import load as load_paper
from reports.papers.paper import Paper
from reports.results import Results
from reports.store.load import Problem, ReportData, load, no_collection
from reports.tables import document, latex, spreadsheet
from reports.tables.paper import paper_tables
from reports.tables.study import study_tables
from sweep.store import layout
from sweep.store.folder import make_folder
from sweep.store.opening import open_store

SOURCES = Path(__file__).parent
CACHE = ".records"  # rows of records that were read before; safe to delete


def write(
    store_uri: str | Path,
    studies: Sequence[str] | None,
    out: Path,
    *,
    figures: bool = True,
    keep_current: bool = False,
    paper: str | Path | None = None,
) -> list[Path]:
    """With `keep_current` the figures and the page stay as they are if they are complete and nothing has changed since:
    no record, and no line of the code that makes them.
    """
    compared = load_paper(paper)
    # Before the records are read: one that arrives meanwhile makes the next report a new one.
    source = fingerprint(store_uri, studies, compared) if figures else ""
    with no_collection():
        data = _with_cells(load(store_uri, studies, out / CACHE))
        results = Results(data, compared)
        by_study = {study: study_tables(results, study) for study in data.manifests}
        from_paper = paper_tables(results)
        make_folder(out)
        every = from_paper + [table for tables in by_study.values() for table in tables]
        shown = [table for table in every if table.planned]
        written = [
            _text(out / "tables.md", document.write(results, by_study, from_paper)),
            _text(out / "tables.tex", latex.document(shown)),
            _text(out / "numbers.tex", latex.numbers(results, shown)),
            _text(out / "tables.csv", spreadsheet.cells(every)),
        ]
    if figures:
        note = out / "plots" / "made_from.txt"
        if keep_current and _is_current(note, source):
            return [*written, out / "report.html"]
        from reports.figures.draw import draw_all
        from reports.page.page import write_page

        note.unlink(missing_ok=True)
        drawn = draw_all(results, out / "plots")
        made = [*drawn, write_page(results, every, drawn, out)]
        _text(note, "\n".join([source, *(path.relative_to(out).as_posix() for path in made)]) + "\n")
        written += made
    return written


def _is_current(note: Path, source: str) -> bool:
    """Whether the files that the note lists were made from this very source and are all still there."""
    if not note.exists():
        return False
    lines = note.read_text(encoding="utf-8").splitlines()
    return lines[:1] == [source] and all((note.parent.parent / name).exists() for name in lines[1:])


def _with_cells(data: ReportData) -> ReportData:
    """Without the studies that have no column to show, which are named among what was left out."""
    present = set(data.cells["study"])
    empty = [
        Problem(f"studies/{name}.json", "broken: it has no cell") for name in data.manifests if name not in present
    ]
    kept = {name: manifest for name, manifest in data.manifests.items() if name in present}
    return replace(data, manifests=kept, problems=[*data.problems, *empty])


def fingerprint(store_uri: str | Path, studies: Sequence[str] | None, paper: Paper) -> str:
    """Changes with every record that a report could show, with the paper, and with the code that shows them.

    Manifests, which are rewritten often, count by content.
    """
    store = open_store(store_uri)
    facts = [f"{store.uri} {studies}", *_hashes(paper.folder, "*.yaml"), *_hashes(SOURCES, "*.py", "templates/*")]
    for folder in ("trials", "evaluations", "diagnostics", "searches", "decisions"):
        facts += sorted(
            f"{entry.path} {entry.size} {entry.modified}"
            for entry in store.entries(folder)
            if entry.path.endswith(".json")
        )
    facts += [f"{path} {hashlib.sha256(store.read(path)).hexdigest()}" for path in store.paths(layout.STUDIES)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _hashes(folder: Path, *kinds: str) -> list[str]:
    """Of these files alone: a report may be written to the folder of the code, as by default."""
    paths = sorted({path for kind in kinds for path in folder.rglob(kind)})
    return [f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in paths]


def _text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
