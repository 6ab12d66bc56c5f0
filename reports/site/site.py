"""`python -m reports site`: an index of studies and one page for each, with relative links only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reports.figures.draw import draw_all, file_stem
from reports.names import setting
from reports.page.page import Download, render, summary, write_page
from reports.page.pictures import Picture, read_pictures
from reports.significance import study_tests
from reports.site.downloads import write_downloads
from reports.store.load import load
from reports.tables.table import headline_measure
from reports.writing import read, write_tables
from sweep.errors import UserError
from sweep.store.files import write_text
from sweep.store.folder import make_folder

TEMPLATES = Path(__file__).parent / "templates"
PAGES = "studies"
TRANSFER = "_transfer"  # ends the name of a study's table of who breaks whom, where there is one


@dataclass(frozen=True)
class Card:
    """One study on the index."""

    address: str  # of its page
    name: str
    title: str
    setting: str
    summary: dict[str, Any]
    hero: Picture | None
    transfer: str  # address of the transfer matrix, "" where there is none
    downloads: list[Download]


def write_site(
    stores: Sequence[str], out: Path, studies: Sequence[str] | None = None, paper: str | Path | None = None
) -> list[Path]:
    """Every study of the stores, or those named; returns the index and the pages."""
    wanted = _studies(stores, studies)
    make_folder(out)
    cards, taken = [], set[str]()
    for store, study in wanted:
        stem = name = file_stem(study)
        number = 2
        # Two stores may have studies of one name; a file system may know no capitals.
        while name.lower() in taken:
            name, number = f"{stem}-{number}", number + 1
        taken.add(name.lower())
        cards.append(_write_study(store, study, paper, out / PAGES / name, f"{PAGES}/{name}"))
    index = out / "index.html"
    write_text(index, render("index.html", TEMPLATES, cards=cards))
    return [index, *(out / card.address for card in cards)]


def _studies(stores: Sequence[str], studies: Sequence[str] | None) -> list[tuple[str, str]]:
    found = []
    for store in stores:
        data = load(store)
        filled = set(data.cells["study"])
        found += [(store, name) for name in data.manifests if name in filled]
    if studies is None:
        return found
    absent = [name for name in studies if name not in {study for _, study in found}]
    if absent:
        known = ", ".join(sorted({study for _, study in found})) or "none"
        raise UserError(f"no store has a study {', '.join(map(repr, absent))}; known: {known}")
    return [(store, study) for store, study in found if study in studies]


def _write_study(store: str, study: str, paper: str | Path | None, folder: Path, address: str) -> Card:
    results = read(store, [study], paper)
    _, tables = write_tables(results, folder)
    drawn = draw_all(results, folder / "plots")
    downloads = write_downloads(results, folder)
    page = write_page(results, tables, drawn, folder, home="../../index.html", downloads=downloads)
    shown = [table for table in tables if table.planned]  # in the order in which the page numbers them
    own = [table for table in shown if table.number is None]
    main = own[0] if own else None
    tests = study_tests(results, study, headline_measure(main)) if main else []
    transfer = next((place for place, table in enumerate(shown) if table.name.endswith(TRANSFER)), None)
    return Card(
        address=f"{address}/{page.name}",
        name=study,
        title=results.title(study),
        setting=setting(results.data.manifests[study]),
        summary=summary(results, study, main, tests),
        hero=next((one for one in read_pictures(drawn) if one.entry.name == "hero" and one.uri), None),
        transfer="" if transfer is None else f"{address}/{page.name}#table-{transfer}",
        downloads=[replace(one, address=f"{address}/{one.address}") for one in downloads],
    )
