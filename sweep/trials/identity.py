"""A trial's name: the SHA-256 of everything that can move its numbers. Loads no torch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from trainers.config import TrialConfig

# Raised whenever code that can move a number changes, so that old records are not taken for new ones.
NUMERICS_VERSION = 2


def canonical(value: Any) -> Any:
    """Plain JSON values, floats rounded to 12 significant digits: 0.6000000000000001 and 0.6 are one value."""
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return repr(value) if not math.isfinite(value) else float(f"{value:.12g}")
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no canonical form")


def canonical_json(value: Any) -> str:
    return json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def trial_hash(config: TrialConfig) -> str:
    return trial_hashes(config, [config.seed])[0]


def trial_hashes(config: TrialConfig, seeds: list[int]) -> list[str]:
    """The hashes of one configuration under several seeds."""
    # Absent settings are left out: a new optional one in a later version renames no stored trial.
    settings = canonical(config.model_dump(mode="json", exclude={"hyperparameters", "seed"}, exclude_none=True))
    # An integer-valued float and the integer are the same setting: 1.0 and 1 must not name two trials.
    settings["hyperparameters"] = {name: _number(value) for name, value in canonical(config.hyperparameters).items()}
    named = ({"config": settings | {"seed": seed}, "numerics": NUMERICS_VERSION} for seed in seeds)
    return [
        hashlib.sha256(json.dumps(one, sort_keys=True, separators=(",", ":")).encode()).hexdigest() for one in named
    ]


def folder(trial: str) -> str:
    """The folder name of a trial; the record inside holds the whole hash."""
    return trial[:16]


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
