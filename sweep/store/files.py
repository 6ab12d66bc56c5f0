"""Files that a user asked for: whole, or as they were before, whatever a disk does meanwhile."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

NAME_CHARACTERS = 200  # of the file's own name in that of the one beside it, which may not be longer than 255

# Where others may write to the folder, no link that somebody put there is followed.
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """What is written here takes the place of the file when all of it is; a link is followed."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a terminal or a pipe: nothing to take the place of
        with target.open("wb") as stream:
            yield stream
        return
    temporary = target.with_name(f".{target.name[:NAME_CHARACTERS]}.{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(os.open(temporary, NEW_FILE, 0o666), "wb") as stream:
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
