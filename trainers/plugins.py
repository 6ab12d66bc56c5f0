"""Methods from outside: a user's file, or packages that announce the entry-point group `robustsweep.methods`.

A plug-in is ordinary Python and runs with the user's rights; only what the user names on the command line is loaded.
Workers of a cluster get the file's text and load it under the same name.
"""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from trainers import methods

if TYPE_CHECKING:
    from trainers.method import Method

GROUP = "robustsweep.methods"

_loaded: dict[str, type[Method]] = {}
_sources: dict[str, str] = {}


def names() -> list[str]:
    return sorted({*_loaded, *_announced()})


def load(name: str) -> type[Method]:
    if name not in _loaded:
        _load_announced(_announced()[name])
    return _loaded[name]


def load_plugin(path: str | Path) -> str:
    """Makes the file's method known under the file's name, and gives that name."""
    path = Path(path)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"plug-in {path} cannot be read: {error}") from None
    return load_source(path.stem, source, file=str(path))


def load_source(name: str, source: str, *, file: str | None = None) -> str:
    """The same from the file's text; loading an equal text again changes nothing."""
    file = file or f"{name}.py"
    if _sources.get(name) == source:
        return name
    if not name.isidentifier():
        raise ValueError(f"plug-in {file}: {name!r} is no method name; rename the file, letters, digits and _ only")
    if name in methods.names() or name in ("awp", "seat", "ddpm"):
        raise ValueError(f"plug-in {file}: the name {name!r} is taken by a method of robustsweep; rename the file")
    if name in _loaded or name in _announced():
        raise ValueError(f"plug-in {file}: another plug-in is already named {name!r}; rename one of the files")
    module = ModuleType(f"robustsweep_plugin_{name}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        _run(source, file, module)
        method = methods.method_in(module, f"plug-in {file}")
    except ValueError:
        del sys.modules[module.__name__]
        raise
    _loaded[name], _sources[name] = method, source
    return name


def sources() -> dict[str, str]:
    """Name and text of every plug-in file loaded here, for workers to load."""
    return dict(_sources)


def plugin_sha256(path: str | Path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def forget(name: str) -> None:
    """Takes a plug-in away again, so that its file may be loaded anew after a change."""
    _loaded.pop(name, None)
    _sources.pop(name, None)
    sys.modules.pop(f"robustsweep_plugin_{name}", None)


@cache
def _announced() -> dict[str, EntryPoint]:
    found = {point.name: point for point in entry_points(group=GROUP)}
    for name in sorted(set(found) & set(methods.names())):
        raise ValueError(f"the installed plug-in {found[name].value!r} takes the name {name!r} of a method; remove it")
    return found


def _load_announced(point: EntryPoint) -> None:
    from trainers.method import Method

    try:
        method = point.load()
    except Exception as error:
        raise ValueError(f"the installed plug-in {point.value!r} does not load: {_described(error)}") from error
    if isinstance(method, ModuleType):
        method = methods.method_in(method, point.value)
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise ValueError(f"the installed plug-in {point.value!r} is no Method class and no module that defines one")
    _loaded[point.name] = method


def _run(source: str, file: str, module: ModuleType) -> None:
    try:
        exec(compile(source, file, "exec"), module.__dict__)
    except SyntaxError as error:
        raise ValueError(f"plug-in {file}, line {error.lineno}: {error.msg}") from None
    except Exception as error:
        # The file is the user's: whatever it raises is one message about it, with the line that raised.
        line = _line_in(error, file)
        where = f", line {line}" if line else ""
        raise ValueError(f"plug-in {file}{where}: {_described(error)}") from error


def _line_in(error: Exception, file: str) -> int | None:
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
