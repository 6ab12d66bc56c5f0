"""Name -> thing: methods, networks, data sets, attacks and wrappers, from our files, a user's, or an installed package.

A thing is named after its file. Ours are found by listing a folder and load when first asked for. A user's file is
ordinary Python and runs with the user's rights; only what is named on the command line is loaded, and workers of a
cluster get its text and load it under the same name. Packages announce things in entry-point groups such as
`robustsweep.methods`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from trainers.attack import EvaluationAttack
from trainers.dataset import DataSource
from trainers.method import Method, declaration_faults
from trainers.network import Architecture
from trainers.spelling import nearest
from trainers.wrapper import Wrapper

Thing = TypeVar("Thing")

MAX_BYTES = 1_000_000


class Registry(Generic[Thing]):
    """All things of one sort. `base` is the class that a file derives from or makes one of."""

    def __init__(self, noun: str, folder: str, base: type, way: str, group: str | None) -> None:
        self.noun, self.base, self.way, self.group = noun, base, way, group
        self.package = f"trainers.{folder.replace('/', '.')}"
        self.folder = Path(__file__).parent / folder
        self.loaded: dict[str, Thing] = {}  # of users' files and packages

    def names(self) -> list[str]:
        return [*shipped(self), *sorted({*self.loaded, *announced(self)})]

    def get(self, name: str) -> Thing:
        if name in self.loaded:
            return self.loaded[name]
        if name in shipped(self):
            return _load_shipped(self, name)
        if name in announced(self):
            return _load_announced(self, announced(self)[name])
        names = self.names()
        raise ValueError(f"unknown {self.noun} {name!r}{nearest(name, names)} known: {', '.join(names)}")

    def things_in(self, module: ModuleType) -> list[Thing]:
        return [value for value in vars(module).values() if self.is_thing(value, module)]

    def is_thing(self, value: Any, module: ModuleType) -> bool:
        if isinstance(value, type):
            return issubclass(value, self.base) and value.__module__ == module.__name__
        return isinstance(value, self.base)

    def thing_in(self, module: ModuleType, name: str, where: str) -> Thing:
        """The one thing that a module defines; a ValueError says what is wrong with it."""
        found = self.things_in(module)
        if not found:
            raise ValueError(f"{where} defines no {self.noun}; {self.way}")
        if len(found) > 1:
            shown = ", ".join(getattr(value, "__name__", "") or "unnamed" for value in found)
            raise ValueError(f"{where} defines {len(found)} {self.noun}s ({shown}); a file holds one")
        return self.checked(found[0], name, where)

    def checked(self, thing: Thing, name: str, where: str) -> Thing:
        faults = _faults(thing, name)
        if faults:
            raise ValueError(f"{where}: {'; '.join(faults)}")
        return thing


def _registry(noun: str, folder: str, base: type[Thing], way: str, group: str | None = None) -> Registry[Any]:
    return Registry(noun, folder, base, way, group and f"robustsweep.{group}")


METHODS: Registry[type[Method]] = _registry(
    "method", "methods", Method, "write a class that derives from trainers.method.Method", "methods"
)
NETWORKS: Registry[Architecture] = _registry(
    "model", "models", Architecture, "write name = trainers.network.Architecture(build, display)", "networks"
)
DATASETS: Registry[DataSource] = _registry(
    "data set", "data/sets", DataSource, "write name = trainers.dataset.DataSource(facts, display, load)", "datasets"
)
ATTACKS: Registry[type[EvaluationAttack]] = _registry(
    "attack", "attacks", EvaluationAttack, "write a class that derives from trainers.attack.EvaluationAttack", "attacks"
)
WRAPPERS: Registry[type[Wrapper]] = _registry(
    "wrapper", "wrappers", Wrapper, "write a class that derives from trainers.wrapper.Wrapper"
)
PLUGGABLE = (METHODS, NETWORKS, DATASETS, ATTACKS)
ALL = (*PLUGGABLE, WRAPPERS)

_sources: dict[str, str] = {}
_sha256: dict[str, str] = {}


def load_plugin(path: str | Path) -> str:
    """Makes what the file defines known under the file's name, and gives that name."""
    path = Path(path)
    content = read_user_file(path, f"plug-in {path}")
    try:
        source = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"plug-in {path} cannot be read: {error}") from None
    name = load_source(path.stem, source.replace("\r\n", "\n"), file=str(path))
    _sha256[name] = hashlib.sha256(content).hexdigest()
    return name


def load_source(name: str, source: str, *, file: str | None = None) -> str:
    """The same from the file's text; loading an equal text again changes nothing."""
    file = file or f"{name}.py"
    if _sources.get(name) == source:
        return name
    if not name.isidentifier():
        raise ValueError(f"plug-in {file}: {name!r} is no name; rename the file, letters, digits and _ only")
    if taken := _taken(name):
        raise ValueError(f"plug-in {file}: the name {name!r} is {taken}; rename the file")
    if any(name in registry.loaded or name in announced(registry) for registry in PLUGGABLE):
        raise ValueError(f"plug-in {file}: another plug-in is already named {name!r}; rename one of the files")
    module = run(source, file, f"robustsweep_plugin_{name}", f"plug-in {file}")
    try:
        registry = _registry_of(module, f"plug-in {file}")
        registry.loaded[name] = registry.thing_in(module, name, f"plug-in {file}")
    except ValueError:
        del sys.modules[module.__name__]
        raise
    _sources[name] = source
    return name


def sources() -> dict[str, str]:
    """Name and text of every plug-in file loaded here, for workers to load."""
    return dict(_sources)


def forget(name: str) -> None:
    """Takes a plug-in away again, so that its file may be loaded anew after a change."""
    for registry in PLUGGABLE:
        registry.loaded.pop(name, None)
    _sources.pop(name, None)
    sys.modules.pop(f"robustsweep_plugin_{name}", None)


def sha256_of(registry: Registry[Any], name: str) -> str | None:
    """Of the file that defines a thing, with the name and version of its package where it has one; None for ours."""
    if name in _sources and name in registry.loaded:
        return _sha256.get(name)
    point = announced(registry).get(name)
    if point is None:
        return None
    module = registry.get(name).__module__ if isinstance(registry.get(name), type) else point.module
    try:
        source = Path(sys.modules[module].__file__ or "").read_bytes()
    except OSError as error:
        raise ValueError(f"{_described_point(point)}: its source cannot be read: {error}") from None
    return hashlib.sha256(f"{_package(point)}\n".encode() + source).hexdigest()


def read_user_file(path: Path, where: str) -> bytes:
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


def attribute(text: str, where: str) -> Any:
    """What a user's file calls by that name, written as file.py:name."""
    path, _, name = text.rpartition(":")
    file = Path(path).expanduser()
    module = run(
        read_user_file(file, f"{where} {path}").decode(), str(file), f"robustsweep_{file.stem}", f"{where} {path}"
    )
    if not hasattr(module, name):
        found = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ValueError(f"{where} {path} has no function {name!r}; it has: {', '.join(found) or 'none'}")
    return getattr(module, name)


@cache
def shipped(registry: Registry[Any]) -> list[str]:
    return sorted(path.stem for path in registry.folder.glob("[a-z]*.py"))


@cache
def _load_shipped(registry: Registry[Thing], name: str) -> Thing:
    module = importlib.import_module(f"{registry.package}.{name}")
    return registry.thing_in(module, name, f"{name}.py")


@cache
def announced(registry: Registry[Any]) -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    faults = []
    for point in entry_points(group=registry.group) if registry.group else ():
        fault = _naming_fault(point, found.setdefault(point.name, point))
        if fault:
            faults.append(f"{_described_point(point)}: {fault}")
    if faults:
        raise ValueError("; ".join(faults))
    return found


def _load_announced(registry: Registry[Thing], point: EntryPoint) -> Thing:
    where = _described_point(point)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            thing = point.load()
    except (Exception, SystemExit) as error:
        raise ValueError(f"{where} does not load: {_described(error)}") from error
    if isinstance(thing, ModuleType):
        thing = registry.thing_in(thing, point.name, point.value)
    if not registry.is_thing(thing, sys.modules[point.module]):
        raise ValueError(f"{where} is no {registry.noun} and no module that defines one")
    registry.loaded[point.name] = registry.checked(thing, point.name, where)
    return registry.loaded[point.name]


def _registry_of(module: ModuleType, where: str) -> Registry[Any]:
    found = [registry for registry in PLUGGABLE if registry.things_in(module)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{where} defines a {' and a '.join(one.noun for one in found)}; a file holds one thing")
    nouns = ", ".join(registry.noun for registry in PLUGGABLE)
    raise ValueError(f"{where} defines no {nouns}; {METHODS.way}")


def _faults(thing: Any, name: str) -> list[str]:
    if isinstance(thing, type) and issubclass(thing, Method):
        if thing.loss is Method.loss and thing.batch_loss is Method.batch_loss:
            return [f"{thing.__name__} defines no loss(self, model, images, labels, attack)"]
        return declaration_faults(thing)
    if isinstance(thing, type) and issubclass(thing, EvaluationAttack):
        kind = thing.model_fields["kind"].default
        return [] if kind == name else [f"{thing.__name__}: its kind is {kind!r}; write kind: str = {name!r}"]
    return []


def _taken(name: str) -> str | None:
    nouns = [registry.noun for registry in ALL if name in shipped(registry)]
    return f"taken by a {nouns[0]} of robustsweep" if nouns else None


def _naming_fault(point: EntryPoint, first: EntryPoint) -> str | None:
    """What is wrong with the name of an entry point; `first` is the first one of that name."""
    if not point.name.isidentifier():
        return f"{point.name!r} is no name; rename the entry point, letters, digits and _ only"
    if taken := _taken(point.name):
        return f"the name {point.name!r} is {taken}; rename the entry point or remove it"
    if point is not first:
        return f"another plug-in is already named {point.name!r}, that of {_package(first)}; remove one of the packages"
    return None


def _described_point(point: EntryPoint) -> str:
    return f"the installed plug-in {point.value!r} of {_package(point)}"


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"


def run(source: str, file: str, name: str, where: str) -> ModuleType:
    """A user's file as a module; whatever it raises is one message about it, with the line that raised."""
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module  # dataclasses look their module up
    try:
        # Standard output belongs to the command, which may be writing JSON.
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(source, file, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, SyntaxError):
            raise ValueError(f"{where}{_at(error.lineno)}: {error.msg}") from None
        raise ValueError(f"{where}{_at(_line_in(error, file))}: {_described(error)}") from error
    return module


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
