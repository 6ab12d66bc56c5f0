"""What shipped methods and networks declare, remembered in a file: planning a study needs no torch.

It is made by loading the real ones, and believed only as long as Python, torch and every file of this package are those
that it was made with. It is safe to delete. What a user brings is always asked itself.
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
from trainers.own.cache import default_root
from trainers.registry import METHODS, NETWORKS

FOLDER = Path(__file__).parent


def method(name: str) -> type[Method]:
    """Its hyperparameters with their rules and its class attributes; of a shipped one perhaps without a loss."""
    return METHODS.get(name) if name in METHODS.loaded or name not in METHODS.shipped else _method(name)


def network(name: str) -> Architecture:
    """How it is shown and which images it takes; to build it loads torch."""
    return NETWORKS.get(name) if name in NETWORKS.loaded or name not in NETWORKS.shipped else _network(name)


@cache
def _method(name: str) -> type[Method]:
    facts = _remembered()["methods"].get(name)
    if facts is None:
        return METHODS.get(name)
    declared = [(key, kind, field(default=default, metadata=rules)) for key, kind, default, rules in facts["fields"]]
    return make_dataclass(name, declared, bases=(Method,), namespace=facts["attributes"], frozen=True)


@cache
def _network(name: str) -> Architecture:
    return Architecture(lambda *given: NETWORKS.get(name).build(*given), **_remembered()["networks"][name])


@cache
def _remembered() -> dict[str, Any]:
    sources = _sources()
    path = default_root() / f"declared-{hashlib.sha256(str(FOLDER).encode()).hexdigest()[:16]}.json"
    with contextlib.suppress(OSError):
        seal, _, body = path.read_bytes().partition(b"\n")
        if seal == _seal(sources, body):  # it is whole, and of these sources
            return dict(json.loads(body))
    found = {
        "methods": {name: _facts(METHODS.get(name)) for name in METHODS.shipped if _is_plain(METHODS.get(name))},
        "networks": {name: _shown(NETWORKS.get(name)) for name in NETWORKS.shipped},
    }
    if sources == _sources():  # else a file was changed while it was loaded
        body = json.dumps(found).encode()
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as stream:
                stream.write(_seal(sources, body) + b"\n" + body)
            os.replace(stream.name, path)
    return found


def _sources() -> str:
    digest = hashlib.sha256(f"{sys.version} {version('torch')}".encode())
    for file in sorted(FOLDER.rglob("*.py")):
        digest.update(f"\n{file} ".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _seal(sources: str, body: bytes) -> bytes:
    return hashlib.sha256(sources.encode() + body).hexdigest().encode()


def _is_plain(method: type[Method]) -> bool:
    """Whether its fields are all that its values are checked by."""
    return method.__post_init__ is Method.__post_init__


def _facts(method: type[Method]) -> dict[str, Any]:
    return {
        "fields": [(one.name, _kind(one), one.default, dict(one.metadata)) for one in fields(method)],
        "attributes": {name: getattr(method, name) for name in Method.__annotations__},
    }


def _kind(declared: Field[Any]) -> str:
    return declared.type if isinstance(declared.type, str) else declared.type.__name__


def _shown(network: Architecture) -> dict[str, Any]:
    return {one.name: getattr(network, one.name) for one in fields(network) if one.name != "build"}
