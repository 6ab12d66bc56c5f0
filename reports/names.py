"""How attacks, data sets and models are written in tables, figures and the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sweep.store.records.manifest import Manifest
from trainers import registry
from trainers.attacks import display_name


def attack_name(name: str) -> str:
    return display_name(name)


def ranking_words(measure: str) -> tuple[str, str]:
    """What a method can be more of by this measure, and against what: robust, under AutoAttack."""
    return ("accurate", "on clean images") if measure == "clean" else ("robust", f"under {attack_name(measure)}")


def listed(names: Iterable[str]) -> str:
    """In a sentence; a name that has a comma of its own, as that of a searched column, is quoted."""
    return ", ".join(f"“{name}”" if "," in name else name for name in names)


def setting(manifest: Manifest) -> str:
    return f"{dataset_name(manifest)}, {network_name(manifest)}"


def dataset_name(manifest: Manifest) -> str:
    return manifest.displays.get("dataset") or _display(registry.DATASETS, manifest.dataset)


def network_name(manifest: Manifest) -> str:
    return manifest.displays.get("model") or _display(registry.NETWORKS, manifest.model)


def _display(known: registry.Registry[Any], name: str) -> str:
    """Of a manifest that was written before it said this itself: whoever is the thing is asked."""
    return str(known.get(name).display) if name in known.names() else name
