"""The project's commands in a forked child: as typed, but in a process that has everything loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sweep import application, cli
from tests.chaos import loop
from tests.chaos.children import Ended, in_child


def known(name: str) -> bool:
    return any((command.name or command.callback.__name__) == name for command in application.app.registered_commands)


def call(words: list[str], folder: Path, *, prepare: Callable[[], None] | None = None) -> Ended:
    """One command in a folder; a run of it computes without Ray."""
    return in_child(partial(_call, words, folder, prepare))


def without_figures() -> None:
    """For the rest of this process: drawing takes ten times as long as all else that a report does."""
    from reports.figures import draw
    from reports.page import page

    def no_figures(results: object, folder: Path) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        return []

    draw.draw_all = no_figures
    page.write_page = lambda results, tables, drawn, out, **_: out / "tables.md"


def _call(words: list[str], folder: Path, prepare: Callable[[], None] | None) -> None:
    loop.use_this_process()
    os.chdir(folder)
    if prepare is not None:
        prepare()
    sys.argv = ["sweep", *words]
    cli.main(words)
