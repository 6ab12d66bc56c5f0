"""How attacks, data sets and networks are written in tables, figures and the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sweep.store.records.manifest import Manifest
from trainers.attacks import display_name
from trainers.plugins import registry


def attack_name(name: str) -> str:
    return display_name(name)


def ranking_words(measure: str) -> tuple[str, str]:
    """Return what a method is more or less of by this measure, and where, such as robust, under AutoAttack."""
    return ("accurate", "on clean images") if measure == "clean" else ("robust", f"under {attack_name(measure)}")


def listed(names: Iterable[str]) -> str:
    """Join names for a sentence. A name that contains a comma, such as that of a searched column, is quoted."""
    return ", ".join(f"“{name}”" if "," in name else name for name in names)


def setting(manifest: Manifest) -> str:
    """Return data set and network in words."""
    return f"{dataset_name(manifest)}, {network_name(manifest)}"


def dataset_name(manifest: Manifest) -> str:
    return manifest.displays.get("dataset") or _display(registry.DATASETS, manifest.dataset)


def network_name(manifest: Manifest) -> str:
    return manifest.displays.get("model") or _display(registry.NETWORKS, manifest.model)


def _display(registered: registry.Registry[Any], name: str) -> str:
    """Return the registered display name. Manifests written before 0.2 have none of their own."""
    return str(registered.get(name).display) if name in registered.names() else name
