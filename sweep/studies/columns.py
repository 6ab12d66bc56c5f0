"""Selection of a study's columns by --methods and --plugin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sweep.errors import UserError
from sweep.studies.check_search import SEARCHED
from trainers import composition
from trainers.plugins import registry
from trainers.plugins.spelling import nearest


def load_plugins(paths: Sequence[str | Path]) -> list[str]:
    """Load the plug-ins and return the names of those that are methods."""
    try:
        composition.method_names()  # report a faulty installed plug-in once, not for every label
        loaded = [registry.load_plugin(path) for path in paths]
        return [name for name in loaded if name in registry.METHODS.names()]
    except ValueError as fault:
        raise UserError(str(fault)) from None


def selected(entries: dict[Any, Any], wanted: Sequence[str] | None, plugins: Iterable[str]) -> dict[Any, Any]:
    for name in plugins:
        used = {
            (entry or {}).get("method", label)
            for label, entry in entries.items()
            if entry is None or isinstance(entry, dict)
        }
        if not any(str(method).split("+")[0] == name for method in used):
            entries = {**entries, name: {}}
    if wanted is None:
        return entries
    if not wanted:
        raise UserError(f"--methods is empty; the study has {', '.join(map(str, entries))}")
    # Keep entries without a known method, such as those of a misspelt --set; the study's check reports them.
    chosen = {label: entry for label, entry in entries.items() if not _is_known(label, entry)}
    faults = []
    for label in wanted:
        label = label if label in entries else label.removesuffix(SEARCHED)  # selecting a label includes its search
        if label in entries:
            chosen[label] = entries[label]
            continue
        try:
            composition.parse(label)
            chosen[label] = {}
        except ValueError as fault:
            known = [*map(str, entries), *composition.method_names()]
            faults.append(str(fault) if "+" in label else f"unknown {label!r}{nearest(label, known)}".rstrip(";"))
    if faults:
        raise UserError(f"--methods: {'; '.join(faults)}\nthe study has {', '.join(map(str, entries))}")
    return chosen


def _is_known(label: Any, entry: Any) -> bool:
    name = entry.get("method") if isinstance(entry, dict) else None
    try:
        composition.parse(str(name or label))
    except ValueError:
        return False
    return True
