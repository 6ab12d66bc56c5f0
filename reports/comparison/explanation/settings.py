"""The settings behind a cell, as nested mappings that are read by dotted names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.analysis.results import Results


def settings_of(results: Results, study: str, label: str) -> dict[str, Any]:
    """Return a label's configuration with the hyperparameters used, which a search may have chosen."""
    config = results.configs(study)[label].model_dump(mode="json")
    return {**config, "hyperparameters": results.hyperparameters[study, label]}


def value_at(settings: Mapping[str, Any], setting: str) -> Any:
    """Return the value of a dotted name; None if it is missing."""
    value: Any = settings
    for name in setting.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def without(settings: Mapping[str, Any], setting: str) -> dict[str, Any]:
    """Return all settings that can affect a number, except for this one."""
    name, _, rest = setting.partition(".")
    remaining = {key: value for key, value in settings.items() if key not in (name, "seed", "margins")}
    if rest and isinstance(settings.get(name), Mapping):
        remaining[name] = without(settings[name], rest)
    return remaining
