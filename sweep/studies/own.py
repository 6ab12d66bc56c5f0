"""A study's own network and data set, named by file or folder: made known before the study is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sweep.studies.file import Fault
from trainers import registry, user_file
from trainers.own import dataset, network

# Key of a study -> whether a value names a thing of one's own, and what makes it known.
OWN: dict[str, tuple[Callable[[str], bool], Callable[[str, Path], str]]] = {
    "model": (network.is_own, registry.load_network),
    "dataset": (dataset.is_own, registry.load_dataset),
}


def own_names(content: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key in OWN if isinstance(value := content.get(key), str) and OWN[key][0](value)}


def base_of(key: str, value: str, written: Mapping[str, Any], folder: Path) -> Path:
    """Where a relative path begins: what is `written` in the study's file in its folder, what was set in the working
    folder."""
    return folder if written.get(key) == value else Path.cwd()


def with_absolute_path(text: str, folder: Path) -> str:
    kind, colon, rest = text.partition(":")
    if colon and kind in ("folder", "npz"):
        return f"{kind}:{user_file.absolute(rest, folder)}"
    path, colon, function = text.rpartition(":")
    return f"{user_file.absolute(path, folder)}:{function}"


def register(content: dict[str, Any], written: Mapping[str, Any], folder: Path) -> Iterator[Fault]:
    """Puts the names under which they are known now into the content."""
    for key, value in own_names(content).items():
        try:
            content[key] = OWN[key][1](value, base_of(key, value, written, folder))
        except ValueError as fault:
            yield Fault(key, str(fault), value)
