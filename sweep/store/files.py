"""Files that a user asked for: whole, or as they were before, whatever a disk does meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

NAME_CHARACTERS = 200  # of the file's own name in that of the one beside it, which may not be longer than 255


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """What is written here takes the place of the file when all of it is; a link is followed."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a terminal or a pipe: nothing to take the place of
        with target.open("wb") as stream:
            yield stream
        return
    temporary = target.with_name(f".{target.name[:NAME_CHARACTERS]}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            yield stream
        temporary.replace(target)
    except BaseException as fault:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(fault, OSError):
            fault.filename, fault.filename2 = str(path), None
        raise


def write_text(path: Path, text: str) -> None:
    with replacing(path) as stream:
        stream.write(text.encode())
