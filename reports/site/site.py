"""A static site: an index of studies and one page for each, with relative links only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reports.analysis.names import setting
from reports.analysis.significance import study_tests
from reports.figures.draw import draw_all, file_stem
from reports.page.page import Download, StudySummary, render, summary, write_page
from reports.page.pictures import Picture, read_pictures
from reports.site.downloads import write_downloads
from reports.store.load import load
from reports.tables.table import headline_measure
from reports.writing import read, write_tables
from sweep.errors import UserError
from sweep.store.files import write_text
from sweep.store.folder import make_folder

TEMPLATES = Path(__file__).parent / "templates"
PAGES = "studies"
TRANSFER = "_transfer"  # suffix of the name of a study's transfer table


@dataclass(frozen=True)
class Card:
    """A study on the index."""

    address: str  # of the study's page
    name: str
    title: str
    setting: str
    summary: StudySummary
    hero: Picture | None
    transfer: str  # address of the transfer matrix, or ""
    downloads: list[Download]


def write_site(
    stores: Sequence[str], out: Path, studies: Sequence[str] | None = None, paper: str | Path | None = None
) -> list[Path]:
    """Write a site of all or the named studies of the stores, and return the paths of the index and the pages."""
    selected = _studies(stores, studies)
    make_folder(out)
    cards, used_names = [], set[str]()
    for store, study in selected:
        stem = name = file_stem(study)
        number = 2
        # Two stores may share a study name, and file systems may ignore case.
        while name.lower() in used_names:
            name, number = f"{stem}-{number}", number + 1
        used_names.add(name.lower())
        cards.append(_write_study(store, study, paper, out / PAGES / name, f"{PAGES}/{name}"))
    index = out / "index.html"
    write_text(index, render("index.html", TEMPLATES, cards=cards))
    return [index, *(out / card.address for card in cards)]


def _studies(stores: Sequence[str], studies: Sequence[str] | None) -> list[tuple[str, str]]:
    available = []
    for store in stores:
        data = load(store)
        with_cells = set(data.cells["study"])
        available += [(store, name) for name in data.manifests if name in with_cells]
    if studies is None:
        return available
    names = {study for _, study in available}
    absent = [name for name in studies if name not in names]
    if absent:
        raise UserError(
            f"no store has a study {', '.join(map(repr, absent))}; known: {', '.join(sorted(names)) or 'none'}"
        )
    return [(store, study) for store, study in available if study in studies]


def _write_study(store: str, study: str, paper: str | Path | None, folder: Path, address: str) -> Card:
    results = read(store, [study], paper)
    _, tables = write_tables(results, folder)
    drawn = draw_all(results, folder / "plots")
    downloads = write_downloads(results, folder)
    page = write_page(results, tables, drawn, folder, home="../../index.html", downloads=downloads)
    planned = [table for table in tables if table.planned]  # in the order of their ids on the page
    own = [table for table in planned if table.number is None]
    main = own[0] if own else None
    tests = study_tests(results, study, headline_measure(main)) if main else []
    transfer = next((index for index, table in enumerate(planned) if table.name.endswith(TRANSFER)), None)
    return Card(
        address=f"{address}/{page.name}",
        name=study,
        title=results.title(study),
        setting=setting(results.data.manifests[study]),
        summary=summary(results, study, main, tests),
        hero=next((picture for picture in read_pictures(drawn) if picture.entry.name == "hero" and picture.uri), None),
        transfer="" if transfer is None else f"{address}/{page.name}#table-{transfer}",
        downloads=[replace(download, address=f"{address}/{download.address}") for download in downloads],
    )
