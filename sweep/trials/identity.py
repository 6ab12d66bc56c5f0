"""The names of trials and searches: the SHA-256 of everything that can move their numbers."""

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

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode  # plain values: none holds itself


def trial_hash(config: TrialConfig) -> str:
    return trial_hashes(config, [config.seed])[0]


def trial_hashes(config: TrialConfig, seeds: Sequence[int]) -> list[str]:
    """The hashes of one configuration under several seeds."""
    settings = dict(sorted({**_settings(config), "seed": 0}.items()))
    facts = {"config": settings, "numerics": NUMERICS_VERSION}
    hashes = []
    for seed in seeds:
        settings["seed"] = seed  # stays at its place in the order
        hashes.append(hashlib.sha256(_encode(facts).encode()).hexdigest())
    return hashes


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def search_id(study: Study, label: str) -> str:
    """Names a search by all that can move its outcome, its space included: equal searches are shared, others never."""
    from optuna.distributions import distribution_to_json  # most studies search nothing

    search, config, radius = study.search[label], study.search_config(label, {}), radius_of(study, label)
    facts = {
        "config": {**_settings(config), "seed": config.seed},
        "search": search.model_dump(mode="python", exclude={"train", "selection", "epochs", "pin"}),  # in the config
        "numerics": NUMERICS_VERSION,
        "space": {
            name: json.loads(distribution_to_json(item))
            for name, item in search_space(config.method, search.space, radius).items()
        },
        "paper_value": search_spaces.paper_value(config.method, study.dataset, study.model, radius),  # a candidate
    }
    return f"{label}-{digest(facts)[:16]}"


def _settings(config: TrialConfig) -> dict[str, Any]:
    """All that moves a trial's numbers, its seed aside, each in one spelling and order."""
    # Absent settings are left out: a new optional one in a later version renames no stored trial.
    others = {"recipe", "selection", "hyperparameters", "seed"}
    settings = _sorted(canonical(config.model_dump(mode="json", exclude=others, exclude_none=True)))
    hyperparameters = {name: _number(canonical(value)) for name, value in sorted(config.hyperparameters.items())}
    method = composition.method_of(config.method)
    recipe, selection = _recipe_and_selection(config.recipe, config.selection, method.start, method.mode)
    return {**settings, "hyperparameters": hyperparameters, "recipe": recipe, "selection": selection}


@lru_cache  # thousands of labels that differ in hyperparameters share these
def _recipe_and_selection(
    recipe: Recipe, selection: Selection, start: str, mode: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`start` and `mode` are those of the method's own code."""
    trained, selected = (canonical(one.model_dump(mode="json", exclude_none=True)) for one in (recipe, selection))
    for name, own in (("start", start), ("mode", mode)):
        if trained["attack"][name] == "method":
            trained["attack"][name] = own
    # Selection has the norm of training unless it says otherwise: to say the same changes nothing.
    if selected.get("norm") == trained["attack"]["norm"]:
        del selected["norm"]
    if "quick" in selected:
        selected["quick"] = quick.PLAN
    return _sorted(trained), _sorted(selected)


def _number(value: Any) -> Any:
    """An integer-valued float and the integer are the same setting: 1.0 and 1 must not name two trials."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
