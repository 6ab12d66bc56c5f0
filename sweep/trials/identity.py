"""A trial's name: the SHA-256 of everything that can move its numbers. Loads no torch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import lru_cache
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
    # An integer-valued float and the integer are the same setting: 1.0 and 1 must not name two trials.
    hyperparameters = {name: _number(value) for name, value in canonical(config.hyperparameters).items()}
    # Absent settings are left out: a new optional one in a later version renames no stored trial.
    rest = config.model_dump_json(exclude={"hyperparameters", "seed"}, exclude_none=True)
    before, between, after = _around(rest)
    start = hashlib.sha256(f'{{"config":{{{before}"hyperparameters":{_dump(hyperparameters)}{between},'.encode())
    hashes = []
    for seed in seeds:
        whole = start.copy()
        whole.update(f'"seed":{seed}{after}}},"numerics":{NUMERICS_VERSION}}}'.encode())
        hashes.append(whole.hexdigest())
    return hashes


@lru_cache(maxsize=256)
def _around(rest: str) -> tuple[str, str, str]:
    """What stands before, between and after hyperparameters and seed in a trial's sorted JSON: many trials share it."""
    parts = {key: f'"{key}":{_dump(canonical(value))}' for key, value in sorted(json.loads(rest).items())}
    before = "".join(f"{text}," for key, text in parts.items() if key < "hyperparameters")
    between = "".join(f",{text}" for key, text in parts.items() if "hyperparameters" < key < "seed")
    after = "".join(f",{text}" for key, text in parts.items() if key > "seed")
    return before, between, after


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def folder(trial: str) -> str:
    """The folder name of a trial; the record inside holds the whole hash."""
    return trial[:16]


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
