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


def _call(words: list[str], folder: Path, prepare: Callable[[], None] | None) -> None:
    loop.use_this_process()
    os.chdir(folder)
    if prepare is not None:
        prepare()
    sys.argv = ["sweep", *words]
    cli.main(words)
