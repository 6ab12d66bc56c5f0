"""Python files that a user names on the command line: read within limits, run, errors reported in one line."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from trainers.compat.torchvision_internals import make_importable

MAX_BYTES = 1_000_000


def read(path: Path, where: str) -> bytes:
    """Return a file's content. Raise ValueError, starting with `where`, if it cannot be read or is too large."""
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
    """Return the content as text, without byte order mark and with Unix line ends."""
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} cannot be read: {error}") from None


def run(source: str, file: str, name: str, where: str, package: str | None = None) -> ModuleType:
    """Run the source as a module and return the module.

    Any exception becomes a ValueError that names the file, the line and the cause. Relative imports resolve in
    `package`.
    """
    module = ModuleType(name)
    module.__file__, module.__package__ = file, package
    sys.modules[name] = module  # dataclasses look up their module
    make_importable()  # torchvision, which a network may import now or when it is built
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
    """Return the attribute of a file that is written as file.py:name."""
    path, _, name = text.rpartition(":")
    file, where = Path(os.path.expanduser(path)), f"{where} {path}"
    module = run(text_of(read(file, where), where), str(file), f"robustsweep_file_{file.stem}", where)
    return named(module, name, where)


def named(module: ModuleType, name: str, where: str) -> Any:
    """Return an attribute of the module. Raise ValueError, listing its functions, if it is missing."""
    if not hasattr(module, name):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ValueError(f"{where} has no function {name!r}; it has: {', '.join(functions) or 'none'}")
    return getattr(module, name)


def split(text: str, example: str) -> tuple[str, str]:
    """Return path and name of file.py:name. Raise ValueError, with `example` as the name, if one is missing."""
    path, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        file = text.rstrip(":") if not colon or not name else path
        raise ValueError(f"{text} does not name a function of the file; write for example {file}:{example}")
    return path, name


def absolute(path: str, folder: Path) -> Path:
    """Return the absolute path; relative ones start in `folder`."""
    return Path(os.path.abspath(folder / os.path.expanduser(path)))


def described(error: BaseException) -> str:
    """Return a one-line description of an exception that a user's code raised."""
    if isinstance(error, SystemExit):
        return f"it exits when it is imported (SystemExit: {error.code}); remove that call"
    kind, message = type(error).__name__, str(error)
    if not message:
        return kind
    return message if isinstance(error, ValueError) else f"{kind}: {message}"


def _at(line: int | None) -> str:
    return f", line {line}" if line else ""


def line_of(error: BaseException, file: str) -> str:
    """Return where in the user's file an exception was raised, as the next words of a message, or '' if unknown."""
    return _at(_line_in(error, file))


def _line_in(error: BaseException, file: str) -> int | None:
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
