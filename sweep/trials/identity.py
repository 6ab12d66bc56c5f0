"""Identities of trials and searches: SHA-256 over everything that can change their results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import search_spaces
from sweep.store.encoding import canonical, digest
from sweep.store.numerics import NUMERICS_VERSION
from sweep.studies.model import Study
from sweep.studies.space import search_space
from sweep.trials.candidates import radius_of
from trainers import composition
from trainers.attacks import quick
from trainers.config import Recipe, Selection, TrialConfig

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode  # plain values contain no cycles


def trial_hash(config: TrialConfig) -> str:
    return trial_hashes(config, [config.seed])[0]


def trial_hashes(config: TrialConfig, seeds: Sequence[int]) -> list[str]:
    """Return the hashes of one configuration under each of several seeds."""
    settings = dict(sorted({**_settings(config), "seed": 0}.items()))
    facts = {"config": settings, "numerics": NUMERICS_VERSION}
    hashes = []
    for seed in seeds:
        settings["seed"] = seed  # keeps its position in the sorted order
        hashes.append(hashlib.sha256(_encode(facts).encode()).hexdigest())
    return hashes


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def search_id(study: Study, label: str) -> str:
    """Return the id of a search: label and hash of all that can change its outcome, so that only equal ones share."""
    from optuna.distributions import distribution_to_json  # imported here because most studies search nothing

    search, config, radius = study.search[label], study.search_config(label, {}), radius_of(study, label)
    facts = {
        "config": {**_settings(config), "seed": config.seed},
        "search": search.model_dump(mode="python", exclude={"train", "selection", "epochs", "pin"}),  # in `config`
        "numerics": NUMERICS_VERSION,
        "space": {
            name: json.loads(distribution_to_json(item))
            for name, item in search_space(config.method, search.space, radius).items()
        },
        "paper_value": search_spaces.paper_value(config.method, study.dataset, study.model, radius),  # a candidate
    }
    return f"{label}-{digest(facts)[:16]}"


def _settings(config: TrialConfig) -> dict[str, Any]:
    """Return all settings that can change a trial's results, without the seed, in canonical spelling and order."""
    # Absent settings are omitted, so that a new optional setting in a later version renames no stored trial.
    others = {"recipe", "selection", "hyperparameters", "seed"}
    settings = _sorted(canonical(config.model_dump(mode="json", exclude=others, exclude_none=True)))
    hyperparameters = {name: _number(canonical(value)) for name, value in sorted(config.hyperparameters.items())}
    method = composition.method_of(config.method)
    recipe, selection = _recipe_and_selection(config.recipe, config.selection, method.start, method.mode)
    return {**settings, "hyperparameters": hyperparameters, "recipe": recipe, "selection": selection}


@lru_cache  # shared by thousands of labels that differ only in hyperparameters
def _recipe_and_selection(
    recipe: Recipe, selection: Selection, start: str, mode: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the canonical recipe and selection; `start` and `mode` are the defaults of the method's own code."""
    trained, selected = (canonical(one.model_dump(mode="json", exclude_none=True)) for one in (recipe, selection))
    for name, own in (("start", start), ("mode", mode)):
        if trained["attack"][name] == "method":
            trained["attack"][name] = own
    # Selection uses the norm of training by default, so naming the same norm must not change the hash.
    if selected.get("norm") == trained["attack"]["norm"]:
        del selected["norm"]
    if "quick" in selected:
        selected["quick"] = quick.PLAN
    return _sorted(trained), _sorted(selected)


def _number(value: Any) -> Any:
    """Convert integer-valued floats to integers, so that 1.0 and 1 give the same trial."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
