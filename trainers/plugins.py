"""Methods from outside: a user's file, or packages that announce the entry-point group `robustsweep.methods`.

A plug-in is ordinary Python and runs with the user's rights; only what the user names on the command line is loaded.
Workers of a cluster get the file's text and load it under the same name.
"""

from __future__ import annotations

import contextlib
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
WRAPPERS = ("awp", "seat", "ddpm")  # as in trainers.composition, which imports this file

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
        source = path.read_text(encoding="utf-8-sig")
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
    if _is_taken(name):
        raise ValueError(f"plug-in {file}: the name {name!r} is taken by a method of robustsweep; rename the file")
    if name in _loaded or name in _announced():
        raise ValueError(f"plug-in {file}: another plug-in is already named {name!r}; rename one of the files")
    module = ModuleType(f"robustsweep_plugin_{name}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        _run(source, file, module)
        method = methods.method_in(module, f"plug-in {file}")
        _check_fields(method, f"plug-in {file}")
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


def installed_sha256(name: str) -> str | None:
    """Of the file that defines an installed method, with its package's name and version; None for all others."""
    point = _announced().get(name)
    if point is None:
        return None
    file = sys.modules[load(name).__module__].__file__ or ""
    try:
        source = Path(file).read_bytes()
    except OSError as error:
        raise ValueError(f"{_described_point(point)}: its source cannot be read: {error}") from None
    return hashlib.sha256(f"{_package(point)}\n".encode() + source).hexdigest()


def forget(name: str) -> None:
    """Takes a plug-in away again, so that its file may be loaded anew after a change."""
    _loaded.pop(name, None)
    _sources.pop(name, None)
    sys.modules.pop(f"robustsweep_plugin_{name}", None)


def _is_taken(name: str) -> bool:
    return name in methods.names() or name in WRAPPERS


@cache
def _announced() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    faults = []
    for point in entry_points(group=GROUP):
        fault = _naming_fault(point, found.setdefault(point.name, point))
        if fault:
            faults.append(f"{_described_point(point)}: {fault}")
    if faults:
        raise ValueError("; ".join(faults))
    return found


def _naming_fault(point: EntryPoint, first: EntryPoint) -> str | None:
    """What is wrong with the name of an entry point; `first` is the first one of that name."""
    if not point.name.isidentifier():
        return f"{point.name!r} is no method name; rename the entry point, letters, digits and _ only"
    if _is_taken(point.name):
        return f"the name {point.name!r} is taken by a method of robustsweep; rename the entry point or remove it"
    if point is not first:
        return f"another plug-in is already named {point.name!r}, that of {_package(first)}; remove one of the packages"
    return None


def _described_point(point: EntryPoint) -> str:
    return f"the installed plug-in {point.value!r} of {_package(point)}"


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"


def _load_announced(point: EntryPoint) -> None:
    from trainers.method import Method

    where = _described_point(point)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            method = point.load()
    except (Exception, SystemExit) as error:
        raise ValueError(f"{where} does not load: {_described(error)}") from error
    if isinstance(method, ModuleType):
        method = methods.method_in(method, point.value)
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise ValueError(f"{where} is no Method class and no module that defines one")
    _check_fields(method, where)
    _loaded[point.name] = method


def _check_fields(method: type[Method], where: str) -> None:
    """A ValueError where a hyperparameter is none that a study can write down."""
    from trainers.method import declaration_faults

    faults = declaration_faults(method)
    if faults:
        raise ValueError(f"{where}: {'; '.join(faults)}")


def _run(source: str, file: str, module: ModuleType) -> None:
    try:
        # Standard output belongs to the command, which may be writing JSON.
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(source, file, "exec"), module.__dict__)
    except SyntaxError as error:
        raise ValueError(f"plug-in {file}{_at(error.lineno)}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        # The file is the user's: whatever it raises is one message about it, with the line that raised.
        raise ValueError(f"plug-in {file}{_at(_line_in(error, file))}: {_described(error)}") from error


def _at(line: int | None) -> str:
    return f", line {line}" if line else ""


def _line_in(error: BaseException, file: str) -> int | None:
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _described(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the program when it is imported (SystemExit: {error.code}); remove that call"
    kind, message = type(error).__name__, str(error)
    if not message:
        return kind
    return message if isinstance(error, ValueError) else f"{kind}: {message}"
