"""Atomic writing of output files: after a failure the previous file is unchanged."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

NAME_CHARACTERS = 200  # of the target's name to keep in that of the temporary file; file systems allow 255 in total

# Other users may be able to write to the folder: do not follow links that they planted.
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a stream whose content replaces the file once it is complete. Links are followed."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a terminal or a pipe, which cannot be replaced
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
