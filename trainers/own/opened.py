"""Which files and folders a piece of Python opens, so that a cache made from them is stale when they change."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_EVENTS = ("open", "os.listdir", "os.scandir")
_ours = tuple({os.path.realpath(place) + os.sep for place in (sys.prefix, sys.base_prefix, "/proc", "/dev", "/sys")})
_watching: list[set[str]] = []
_hooked = False


@contextmanager
def opened_files() -> Iterator[set[str]]:
    """Filled while the block runs. What a library opens without Python (HDF5, for example) is not seen."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_note)  # stays for the rest of the process, and does nothing outside of a block
        _hooked = True
    found: set[str] = set()
    _watching.append(found)
    try:
        yield found
    finally:
        _watching.remove(found)
        kept = {os.path.abspath(path) for path in found}
        found.clear()
        found.update(path for path in kept if _counts(path))


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in _EVENTS and arguments and isinstance(arguments[0], str):
        for found in _watching:
            found.add(arguments[0])


def _counts(path: str) -> bool:
    inside = os.path.realpath(path)
    return os.path.exists(path) and not path.endswith((".py", ".pyc")) and not inside.startswith(_ours)
