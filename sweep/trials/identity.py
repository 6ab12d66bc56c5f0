"""The names of trials and searches: the SHA-256 of everything that can move their numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from optuna.distributions import distribution_to_json

import search_spaces
from sweep.store.encoding import canonical, digest
from sweep.studies.model import Study
from sweep.studies.space import search_space
from trainers import composition
from trainers.config import TrialConfig

# Raised whenever code that can move a number changes, so that old records are not taken for new ones.
NUMERICS_VERSION = 3


def trial_hash(config: TrialConfig) -> str:
    return trial_hashes(config, [config.seed])[0]


def trial_hashes(config: TrialConfig, seeds: Sequence[int]) -> list[str]:
    """The hashes of one configuration under several seeds."""
    settings = _settings(config)
    hashes = []
    for seed in seeds:
        facts = {"config": {**settings, "seed": seed}, "numerics": NUMERICS_VERSION}
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        hashes.append(hashlib.sha256(text.encode()).hexdigest())
    return hashes


def search_id(study: Study, label: str) -> str:
    """Names a search by all that can move its outcome, its space included: equal searches are shared, others never."""
    search, config = study.search[label], study.search_config(label, {})
    facts = {
        "config": {**_settings(config), "seed": config.seed},
        "search": search.model_dump(mode="python", exclude={"train", "selection", "epochs", "pin"}),  # in the config
        "numerics": NUMERICS_VERSION,
        "space": {
            name: json.loads(distribution_to_json(item))
            for name, item in search_space(config.method, search.space).items()
        },
        "paper_value": search_spaces.paper_value(config.method, study.dataset, study.model),  # the first candidate
    }
    return f"{label}-{digest(facts)[:16]}"


def _settings(config: TrialConfig) -> dict[str, Any]:
    """All that moves a trial's numbers, its seed aside, each in one spelling."""
    # Absent settings are left out: a new optional one in a later version renames no stored trial.
    settings = canonical(config.model_dump(mode="json", exclude={"hyperparameters", "seed"}, exclude_none=True))
    settings["hyperparameters"] = {name: _number(value) for name, value in canonical(config.hyperparameters).items()}
    method, attack = composition.method_of(config.method), settings["recipe"]["attack"]
    for name in ("start", "mode"):
        if attack[name] == "method":
            attack[name] = getattr(method, name)
    # Selection has the norm of training unless it says otherwise: to say the same changes nothing.
    if settings["selection"].get("norm") == attack["norm"]:
        del settings["selection"]["norm"]
    return dict(settings)


def _number(value: Any) -> Any:
    """An integer-valued float and the integer are the same setting: 1.0 and 1 must not name two trials."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
