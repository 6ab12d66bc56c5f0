"""The settings behind a cell, as a mapping with dotted names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.results import Results


def settings_of(results: Results, study: str, label: str) -> dict[str, Any]:
    """The configuration with the hyperparameters that were used, which a search may have chosen."""
    config = results.configs(study)[label].model_dump(mode="json")
    return {**config, "hyperparameters": results.hyperparameters[study, label]}


def value_at(settings: Mapping[str, Any], setting: str) -> Any:
    found: Any = settings
    for name in setting.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def without(settings: Mapping[str, Any], setting: str) -> dict[str, Any]:
    """All that could move a number but this."""
    name, _, rest = setting.partition(".")
    kept = {key: value for key, value in settings.items() if key not in (name, "seed", "margins")}
    if rest and isinstance(settings.get(name), Mapping):
        kept[name] = without(settings[name], rest)
    return kept
