"""Downloads of a study's page: results, tables, figures, and any counterexamples in the store."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from reports.analysis.results import Results
from reports.export import results_frame, write_frame
from reports.page.page import Download
from sweep.store import layout

COUNTEREXAMPLES = "counterexamples"  # name of the archive, and of a folder in some stores
EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that the same files give the same archive


def write_downloads(results: Results, folder: Path) -> list[Download]:
    """Write results and archives into `folder`, and return them with the tables that are already there."""
    frame = results_frame(results.data)
    write_frame(frame, folder / "results.csv", folder / "results.parquet")
    offered = {
        "results.csv": "one row per training and evaluation",
        "results.parquet": "the same as Parquet",
        "tables.csv": "every cell of the tables, with its values and tests",
        "tables.tex": "the tables as LaTeX",
        "tables.md": "the tables as Markdown",
        "numbers.tex": "one LaTeX macro per number",
    }
    plots = sorted((folder / "plots").glob("*.pdf"))
    if plots:
        _pack(folder / "figures.zip", ((path.name, path.read_bytes()) for path in plots))
        offered["figures.zip"] = f"{len(plots)} figures as PDF"
    paths = list(counterexamples(results))
    if paths:
        store = results.data.store
        _pack(folder / f"{COUNTEREXAMPLES}.zip", ((path, store.read(path)) for path in paths))
        offered[f"{COUNTEREXAMPLES}.zip"] = f"adversarial images of {len(paths)} evaluations, by path in the store"
    return [Download(name, words, (folder / name).stat().st_size) for name, words in offered.items()]


def counterexamples(results: Results) -> Iterator[str]:
    """Yield the store's paths of the counterexamples of these trials."""
    trials = dict.fromkeys(str(trial) for trial in results.data.cells["trial"] if trial)
    for trial in trials:
        for folder in (layout.evaluations_of(trial), f"{COUNTEREXAMPLES}/{trial}"):
            yield from (path for path in results.data.store.paths(folder) if path.endswith(".npz"))


def _pack(archive: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write the archive file by file, because all counterexamples of a study would not fit in memory."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files:
            opened.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)
