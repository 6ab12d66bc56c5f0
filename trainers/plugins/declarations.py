"""A cache of what shipped methods and networks declare, so that planning a study does not load torch.

It is built by loading the real ones. It is valid as long as Python, torch and every file of this package are the ones
that it was built from, and it is safe to delete. Plug-ins are never cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from dataclasses import Field, field, fields, make_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trainers.method import Method
from trainers.network import Architecture
from trainers.plugins.own.cache import default_root
from trainers.plugins.registry import METHODS, NETWORKS

FOLDER = Path(__file__).parents[1]


def method(name: str) -> type[Method]:
    """Return a method's class with its hyperparameters, their rules and its class attributes.

    The class of a shipped method may lack its loss; `composition.build` returns one that has it.
    """
    return METHODS.get(name) if name in METHODS.loaded or name not in METHODS.shipped else _method(name)


def network(name: str) -> Architecture:
    """Return a network's display name and the images that it takes. Building it loads torch."""
    return NETWORKS.get(name) if name in NETWORKS.loaded or name not in NETWORKS.shipped else _network(name)


@cache
def _method(name: str) -> type[Method]:
    facts = _cached()["methods"].get(name)
    if facts is None:
        return METHODS.get(name)
    declared = [(key, kind, field(default=default, metadata=rules)) for key, kind, default, rules in facts["fields"]]
    return make_dataclass(name, declared, bases=(Method,), namespace=facts["attributes"], frozen=True)


@cache
def _network(name: str) -> Architecture:
    return Architecture(lambda *arguments: NETWORKS.get(name).build(*arguments), **_cached()["networks"][name])


@cache
def _cached() -> dict[str, Any]:
    sources = _sources()
    path = default_root() / f"declared-{hashlib.sha256(str(FOLDER).encode()).hexdigest()[:16]}.json"
    with contextlib.suppress(OSError):
        seal, _, body = path.read_bytes().partition(b"\n")
        if seal == _seal(sources, body):  # complete, and made from these sources
            return dict(json.loads(body))
    declarations = {
        "methods": {name: _facts(METHODS.get(name)) for name in METHODS.shipped if _is_plain(METHODS.get(name))},
        "networks": {name: _display_facts(NETWORKS.get(name)) for name in NETWORKS.shipped},
    }
    if sources == _sources():  # otherwise a file changed while it was loaded
        body = json.dumps(declarations).encode()
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as stream:
                stream.write(_seal(sources, body) + b"\n" + body)
            os.replace(stream.name, path)
    return declarations


def _sources() -> str:
    digest = hashlib.sha256(f"{sys.version} {version('torch')}".encode())
    for file in sorted(FOLDER.rglob("*.py")):
        digest.update(f"\n{file} ".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _seal(sources: str, body: bytes) -> bytes:
    return hashlib.sha256(sources.encode() + body).hexdigest().encode()


def _is_plain(method: type[Method]) -> bool:
    """Return True if the class checks its values by its fields alone."""
    return method.__post_init__ is Method.__post_init__


def _facts(method: type[Method]) -> dict[str, Any]:
    return {
        "fields": [(item.name, _kind(item), item.default, dict(item.metadata)) for item in fields(method)],
        "attributes": {name: getattr(method, name) for name in Method.__annotations__},
    }


def _kind(declared: Field[Any]) -> str:
    return declared.type if isinstance(declared.type, str) else declared.type.__name__


def _display_facts(network: Architecture) -> dict[str, Any]:
    return {item.name: getattr(network, item.name) for item in fields(network) if item.name != "build"}
