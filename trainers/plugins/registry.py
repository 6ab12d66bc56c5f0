"""Registries of methods, networks, data sets, attacks and wrappers, by name.

A thing is named after its file. Ours are found by listing a folder and are loaded on first use. A user's file is
ordinary Python and runs with the user's rights; only files named on the command line are loaded, and the workers of a
cluster receive their text and load it under the same name. Installed packages announce things in entry-point groups
such as `robustsweep.methods`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from trainers.attack import EvaluationAttack
from trainers.dataset import DataSource
from trainers.method import Method, declaration_faults
from trainers.network import Architecture, Shape
from trainers.plugins import user_file
from trainers.plugins.own import dataset as own_dataset
from trainers.plugins.own import network as own_network
from trainers.plugins.own.code import Code
from trainers.plugins.spelling import nearest
from trainers.wrapper import Wrapper

Thing = TypeVar("Thing")


class Registry(Generic[Thing]):
    """All things of one sort. A file either derives a class from `base` or creates an instance of it."""

    def __init__(self, noun: str, folder: str, base: type, group: str | None = None) -> None:
        self.noun, self.base, self.group = noun, base, group
        self.package = f"trainers.{folder.replace('/', '.')}"
        self.shipped = sorted(path.stem for path in (Path(__file__).parents[1] / folder).glob("[a-z]*.py"))
        self.loaded: dict[str, Thing] = {}

    def names(self) -> list[str]:
        """Return all names, the shipped ones first."""
        added = {*self.loaded, *announced(self)}.difference(self.shipped)
        return [*self.shipped, *sorted(added)]

    def __contains__(self, name: str) -> bool:
        return name in self.shipped or name in self.loaded or name in announced(self)

    def get(self, name: str) -> Thing:
        """Return the thing with this name, loading it if needed. Raise ValueError for an unknown name."""
        if name not in self.loaded:
            self.loaded[name] = self._load(name)
        return self.loaded[name]

    def _load(self, name: str) -> Thing:
        if name in self.shipped:
            return self.thing_in(importlib.import_module(f"{self.package}.{name}"), name, f"{name}.py")
        if name in announced(self):
            return _load_announced(self, announced(self)[name])
        names = self.names()
        raise ValueError(f"unknown {self.noun} {name!r}{nearest(name, names)} known: {', '.join(names)}")

    def things_in(self, module: ModuleType) -> list[Thing]:
        """Return the things of this sort that a module defines."""
        return [value for value in vars(module).values() if self.is_thing(value, module.__name__)]

    def is_thing(self, value: Any, module: str) -> bool:
        """Return True if a value in a module of this name is a thing of this sort, and not merely imported."""
        if isinstance(value, type):
            return issubclass(value, self.base) and value.__module__ == module
        return isinstance(value, self.base)

    def thing_in(self, module: ModuleType, name: str, where: str) -> Thing:
        """Return the one thing that a module defines. Raise ValueError if there is none, several or a faulty one."""
        things = self.things_in(module)
        if len(things) != 1:
            listed = ", ".join(key for key, value in vars(module).items() if value in things)
            number = f"{len(things)} {self.noun}s ({listed})" if things else f"no {self.noun}"
            raise ValueError(f"{where} defines {number}; a file holds one {self.base.__module__}.{self.base.__name__}")
        return checked(things[0], name, where)


METHODS: Registry[type[Method]] = Registry("method", "methods", Method, "robustsweep.methods")
NETWORKS: Registry[Architecture] = Registry("model", "models", Architecture, "robustsweep.networks")
DATASETS: Registry[DataSource] = Registry("data set", "data/sets", DataSource, "robustsweep.datasets")
ATTACKS: Registry[type[EvaluationAttack]] = Registry("attack", "attacks", EvaluationAttack, "robustsweep.attacks")
WRAPPERS: Registry[type[Wrapper]] = Registry("wrapper", "wrappers", Wrapper)
PLUGGABLE: tuple[Registry[Any], ...] = (METHODS, NETWORKS, DATASETS, ATTACKS)

_sources: dict[str, str] = {}
_codes: dict[str, Code] = {}
_SEVERAL_FILES = '{"modules and files": '  # start of the text of a plug-in with modules or files of its own
_sha256: dict[str, str] = {}


def load_plugin(path: str | Path) -> str:
    """Load a plug-in's file, register what it defines under the file's name, and return that name."""
    path, where = Path(path), f"plug-in {path}"
    content = user_file.read(path, where)
    name = load_source(path.stem, user_file.text_of(content, where), file=str(path), recording=True)
    _sha256[name] = hashlib.sha256(content).hexdigest()
    return name


def load_network(text: str, folder: Path) -> str:
    """Register a network such as `my_net.py:build` and return its name. Relative paths start in `folder`."""
    return load_source(*own_network.read(text, folder), recording=True)


def load_dataset(text: str, folder: Path) -> str:
    """Register a data set such as `folder:PATH`, `npz:PATH` or `my_data.py:load` and return its name.

    Relative paths start in `folder`. The images are decoded on first use.
    """
    return load_source(*own_dataset.read(text, folder))


def load_source(name: str, source: str, *, file: str | None = None, recording: bool = False) -> str:
    """Register what a file's text defines and return its name. Loading an equal text again changes nothing.

    `recording` is True in the process of the user's command, which records the modules and files that belong to the
    code; `sources` includes them in the text for other processes.
    """
    if name in _sources and source in (_sources[name], _text(name)):
        changed = _codes[name].changed() if recording and name in _codes else None
        if changed is None:
            return name
        raise ValueError(
            f"{name}: {changed}, which belongs to it, has changed since this process read it; restart the command"
        )
    if ":" in name:
        return _load_own(name, source, recording)
    text = source
    received: dict[str, Any] | None = None if recording else {}
    if source.startswith(_SEVERAL_FILES):
        content = json.loads(source)
        source, file, received = content["source"], content["file"], content["modules and files"]
    file = file or f"{name}.py"
    where = f"plug-in {file}"
    if fault := _naming_fault(name):
        raise ValueError(f"{where}: {fault}; rename the file")
    if any(name in registry.names() for registry in PLUGGABLE):
        raise ValueError(f"{where}: another plug-in is already named {name!r}; rename one of the files")
    code = Code(file, source, received)
    module = code.run(f"robustsweep_plugin_{name}", where)
    try:
        registry = _registry_of(module, where)
        thing = registry.thing_in(module, name, where)
    except ValueError:
        del sys.modules[module.__name__]
        raise
    registry.loaded[name] = replace(thing, build=code.tracked(thing.build)) if registry is NETWORKS else thing
    _sources[name], _codes[name] = text, code
    return name


def _load_own(name: str, text: str, recording: bool = False) -> str:
    content = json.loads(text)
    if name in _sources:
        raise ValueError(
            f"{content['noun']} {name}: this process has already loaded another one of that name; rename one, or "
            "restart the command"
        )
    if content["noun"] == own_network.NOUN:
        received = None if recording else content.get("modules and files", {})
        code = Code(content["file"], content["source"], received)
        NETWORKS.loaded[name], _codes[name] = own_network.architecture(name, code), code
    else:
        DATASETS.loaded[name], _sha256[name] = own_dataset.source(name, content)
    _sources[name] = text
    return name


def sources() -> dict[str, str]:
    """Return name and text of every user's file loaded here, with what belongs to it, for workers to load."""
    return {name: _text(name) for name in _sources}


def _text(name: str) -> str:
    code = _codes.get(name)
    content = None if code is None or code.fixed else code.content()
    if code is None or not content:
        return _sources[name]
    if ":" in name:
        return json.dumps({**json.loads(_sources[name]), "modules and files": content}, sort_keys=True)
    return json.dumps({"modules and files": content, "file": code.file, "source": code.source})


def code_of(name: str) -> Code | None:
    """Return the file behind a plug-in or a user's network, with the modules and files that belong to it."""
    return _codes.get(name)


def load_sources(texts: Mapping[str, str]) -> None:
    """Load what another process has loaded, as returned by its `sources`."""
    for name, text in texts.items():
        load_source(name, text)


def fingerprint(method: str, model: str, dataset: str) -> str | None:
    """Return the SHA-256 of whatever is not ours among method, network and data set, or None if all three are ours.

    Several are combined into one hash.
    """
    if model in _codes:
        facts = DATASETS.get(dataset).facts
        record_build(model, facts.classes, facts.shape)
    things = ((METHODS, method), (NETWORKS, model), (DATASETS, dataset))
    hashes = [sha256 for sha256 in (sha256_of(*thing) for thing in things) if sha256]
    if len(hashes) > 1:
        return hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    return hashes[0] if hashes else None


def record_build(model: str, classes: int, shape: Shape) -> None:
    """Build a user's network once for images of this shape, so that the files it opens belong to its hash."""
    code = _codes.get(model)
    if code is None or code.fixed or model not in NETWORKS.loaded:
        return
    if (classes, tuple(shape)) in code.built:
        return
    import torch

    # A network that cannot be built is rejected, with the reason, when it is tried.
    with contextlib.suppress(Exception), torch.random.fork_rng(devices=[]):
        NETWORKS.get(model).build(classes, shape, None, None)
    code.built.add((classes, tuple(shape)))


def forget(name: str) -> None:
    """Unregister a plug-in, so that its file can be loaded again after a change."""
    for registry in PLUGGABLE:
        registry.loaded.pop(name, None)
    _sources.pop(name, None)
    _codes.pop(name, None)
    sys.modules.pop(f"robustsweep_plugin_{name}", None)


def sha256_of(registry: Registry[Any], name: str) -> str | None:
    """Return the SHA-256 of the file that defines a thing, or None for ours.

    For an installed plug-in, the name and version of its package are hashed too.
    """
    if name in _sources and name in registry.loaded:
        code = _codes.get(name)
        if code is None or (code.fixed and ":" not in name):
            return _sha256.get(name)
        return code.sha256(_sha256.get(name))
    point = announced(registry).get(name)
    if point is None:
        return None
    thing = registry.get(name)
    file = sys.modules[thing.__module__ if isinstance(thing, type) else point.module].__file__ or ""
    try:
        source = Path(file).read_bytes()
    except OSError as error:
        raise ValueError(f"{_described_point(point)}: its source cannot be read: {error}") from None
    return hashlib.sha256(f"{_package(point)}\n".encode() + source).hexdigest()


@cache
def announced(registry: Registry[Any]) -> dict[str, EntryPoint]:
    """Return the entry points of installed packages, by name, without loading them."""
    points: dict[str, EntryPoint] = {}
    faults = []
    for point in all_announced().select(group=registry.group) if registry.group else ():
        first = points.setdefault(point.name, point)
        fault = _naming_fault(point.name)
        if fault:
            faults.append(f"{_described_point(point)}: {fault}; rename the entry point or remove it")
        elif point is not first:
            clash = f"another plug-in is already named {point.name!r}, from {_package(first)}"
            faults.append(f"{_described_point(point)}: {clash}; remove one of the packages")
    if faults:
        raise ValueError("; ".join(faults))
    return points


@cache
def all_announced() -> Any:
    """Return the entry points of all groups. Cached, because it opens a file of each installed package."""
    return entry_points()


def _load_announced(registry: Registry[Thing], point: EntryPoint) -> Thing:
    where = _described_point(point)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            thing = point.load()
    except (Exception, SystemExit) as error:
        raise ValueError(f"{where} does not load: {user_file.described(error)}") from error
    if isinstance(thing, ModuleType):
        return registry.thing_in(thing, point.name, where)
    if not registry.is_thing(thing, getattr(thing, "__module__", "")):
        raise ValueError(f"{where} is not a valid {registry.noun}, nor a module that defines one")
    return checked(thing, point.name, where)


def checked(thing: Any, name: str, where: str) -> Any:
    """Return the thing if it is well defined, otherwise raise ValueError with its faults."""
    faults = []
    if isinstance(thing, type) and issubclass(thing, Method):
        faults = declaration_faults(thing)
        if thing.loss is Method.loss and thing.batch_loss is Method.batch_loss:
            faults = [f"{thing.__name__} defines no loss(self, model, images, labels, attack)"]
    if isinstance(thing, type) and issubclass(thing, EvaluationAttack):
        kind = thing.model_fields["kind"].default
        faults = [] if kind == name else [f"{thing.__name__}: its kind is {kind!r}; write kind: str = {name!r}"]
    if faults:
        raise ValueError(f"{where}: {'; '.join(faults)}")
    return thing


def _registry_of(module: ModuleType, where: str) -> Registry[Any]:
    matching = [registry for registry in PLUGGABLE if registry.things_in(module)]
    if len(matching) == 1:
        return matching[0]
    nouns = [registry.noun for registry in matching or PLUGGABLE]
    if matching:
        raise ValueError(f"{where} defines a {' and a '.join(nouns)}; a file holds one thing")
    raise ValueError(f"{where} defines no {', '.join(nouns)}; write for example a class that derives from Method")


def _naming_fault(name: str) -> str | None:
    if not name.isidentifier():
        return f"{name!r} is not a valid name: use letters, digits and _ only"
    nouns = [registry.noun for registry in (*PLUGGABLE, WRAPPERS) if name in registry.shipped]
    return f"the name {name!r} is taken by robustsweep's own {nouns[0]}" if nouns else None


def _described_point(point: EntryPoint) -> str:
    return f"the installed plug-in {point.value!r} of {_package(point)}"


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
