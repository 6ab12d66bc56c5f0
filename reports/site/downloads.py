"""What a study's page offers to download: results, tables, figures, and counterexamples where the store has them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from reports.export import results_frame, write_frame
from reports.page.page import Download
from reports.results import Results
from sweep.store import layout

COUNTEREXAMPLES = "counterexamples"  # of the archive, and of a folder of the store that has such
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files give the same archive


def write_downloads(results: Results, folder: Path) -> list[Download]:
    """Beside the tables and plots that are there already."""
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
    kept = list(counterexamples(results))
    if kept:
        store = results.data.store
        _pack(folder / f"{COUNTEREXAMPLES}.zip", ((path, store.read(path)) for path in kept))
        offered[f"{COUNTEREXAMPLES}.zip"] = (
            f"adversarial images of {len(kept)} evaluations, by their paths in the store"
        )
    return [Download(name, words, (folder / name).stat().st_size) for name, words in offered.items()]


def counterexamples(results: Results) -> Iterator[str]:
    """Arrays that evaluations of these trials keep beside their records or in a folder of their own."""
    trials = dict.fromkeys(str(trial) for trial in results.data.cells["trial"] if trial)
    for trial in trials:
        for place in (layout.evaluations_of(trial), f"{COUNTEREXAMPLES}/{trial}"):
            yield from (path for path in results.data.store.paths(place) if path.endswith(".npz"))


def _pack(archive: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """One after the other: all counterexamples of a study would not fit in memory."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files:
            opened.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED)
