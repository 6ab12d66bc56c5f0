"""A Python file that a user names on the command line: read within limits, run, its faults told in one line."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

MAX_BYTES = 1_000_000


def read(path: Path, where: str) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"{where} cannot be read: it is not a regular file")
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{where} cannot be read: {error}") from None
    if len(content) > MAX_BYTES:
        raise ValueError(f"{where} cannot be read: it is larger than {MAX_BYTES // 1_000_000} MB")
    return content


def text_of(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} cannot be read: {error}") from None


def run(source: str, file: str, name: str, where: str, package: str | None = None) -> ModuleType:
    """The file as a module; whatever it raises becomes one message about it, with the line that raised.

    Relative imports begin in `package`.
    """
    module = ModuleType(name)
    module.__file__, module.__package__ = file, package
    sys.modules[name] = module  # dataclasses look their module up
    try:
        # Standard output belongs to the command, which may be writing JSON.
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(source, file, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, SyntaxError):
            raise ValueError(f"{where}{_at(error.lineno)}: {error.msg}") from None
        raise ValueError(f"{where}{line_of(error, file)}: {described(error)}") from error
    return module


def attribute(text: str, where: str) -> Any:
    """What a file calls by that name, written as file.py:name."""
    path, _, name = text.rpartition(":")
    file, where = Path(os.path.expanduser(path)), f"{where} {path}"
    module = run(text_of(read(file, where), where), str(file), f"robustsweep_file_{file.stem}", where)
    return named(module, name, where)


def named(module: ModuleType, name: str, where: str) -> Any:
    if not hasattr(module, name):
        found = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ValueError(f"{where} has no function {name!r}; it has: {', '.join(found) or 'none'}")
    return getattr(module, name)


def split(text: str, example: str) -> tuple[str, str]:
    """Path and name of file.py:name."""
    path, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        file = text.rstrip(":") if not colon or not name else path
        raise ValueError(f"{text} names no function of the file; write for example {file}:{example}")
    return path, name


def absolute(path: str, folder: Path) -> Path:
    """A path as it was written, from the folder that relative ones begin in."""
    return Path(os.path.abspath(folder / os.path.expanduser(path)))


def described(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the program when it is imported (SystemExit: {error.code}); remove that call"
    kind, message = type(error).__name__, str(error)
    if not message:
        return kind
    return message if isinstance(error, ValueError) else f"{kind}: {message}"


def _at(line: int | None) -> str:
    return f", line {line}" if line else ""


def line_of(error: BaseException, file: str) -> str:
    """Where in the user's file it was raised, as the next words of a message; nothing where that is unknown."""
    return _at(_line_in(error, file))


def _line_in(error: BaseException, file: str) -> int | None:
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
