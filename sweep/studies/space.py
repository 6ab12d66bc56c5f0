"""Search spaces of a study: a named space, the method's declared ranges, or ranges written in the study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import search_spaces
from trainers import composition
from trainers.method import is_number
from trainers.plugins import registry
from trainers.plugins.spelling import nearest

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

DECLARED = "declared"
EXAMPLE = "{temperature: [0.1, 10, log]}"
FORMS = "[low, high], [low, high, step], [low, high, log] or {choices: [...]}"

Space = str | Mapping[str, Any]  # paper, fine, continuous, declared; or ranges by hyperparameter


def has_space(method: str, space: Space) -> bool:
    """Return whether a named or written space has ranges for this method. Does not import Optuna."""
    if isinstance(space, str) and space != DECLARED and not _declares_its_own(method):
        return method.split("+")[0] in search_spaces.names()
    return bool(_declared(method) if isinstance(space, str) else space)


def _declares_its_own(method: str) -> bool:
    """Return whether the method is a plug-in's; it has no file in `search_spaces`, so its declared ranges are used."""
    base = method.split("+")[0]
    return base not in registry.METHODS.shipped and base in registry.METHODS.names()


def search_space(method: str, space: Space, radius: float = search_spaces.RADIUS) -> dict[str, BaseDistribution]:
    """Return the distributions for this training radius; raise a ValueError if a written space is invalid."""
    if isinstance(space, str) and space != DECLARED and not _declares_its_own(method):
        return search_spaces.space(method, space, radius)
    ranges = _declared(method) if isinstance(space, str) else space
    return {name: _distribution(method, name, ranges[name]) for name in sorted(ranges)}


def space_faults(method: str, space: Mapping[str, Any]) -> list[str]:
    """Return the faults of a written space; its bounds are tried as hyperparameters of the method."""
    declared = [field.name for field in fields(composition.method_of(method))]
    faults = []
    for name, written in space.items():
        if name not in declared:
            known = ", ".join(declared) or "none"
            faults.append(f"{method} has no hyperparameter {name!r}{nearest(str(name), declared)} known: {known}")
            continue
        try:
            values, _ = _read(name, written)
            for value in values:
                composition.resolved_hyperparameters(method, {name: value})
            _distribution(method, name, written)
        except (ValueError, TypeError) as fault:
            faults.append(str(fault))
    return faults


def _declared(method: str) -> dict[str, Any]:
    """Return the ranges declared by `hyperparameter(low, high, log)` or `choices`; open-ended ones are skipped."""
    found: dict[str, Any] = {}
    for field in fields(composition.method_of(method)):
        rule = field.metadata
        given: list[Any] = [rule.get("low"), rule.get("high")]
        ends = [end for end in given if is_number(end) and math.isfinite(end)]
        if rule.get("choices"):
            found[field.name] = {"choices": list(rule["choices"])}
        elif len(ends) == 2:
            found[field.name] = [*ends, "log"] if rule.get("log") else ends
    return found


def _read(name: str, written: Any) -> tuple[list[Any], str | float | None]:
    """Return the bounds or choices of a written range, and its kind: "choices", "log", a step, or None."""
    if isinstance(written, Mapping) and set(written) == {"choices"} and _is_list(written["choices"]):
        if len(written["choices"]) < 2:
            raise ValueError(f"{name}: {written!r} leaves nothing to choose; give at least two")
        return list(written["choices"]), "choices"
    if not _is_list(written) or not 2 <= len(written) <= 3 or not all(map(is_number, written[:2])):
        raise ValueError(f"{name}: {written!r} is no range; write {FORMS}")
    low, high = written[:2]
    more = written[2] if len(written) == 3 else None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"{name}: {written!r} must rise from a finite low to a finite high")
    if more == "log":
        if low <= 0:
            raise ValueError(f"{name}: {written!r} is logarithmic, so its low must be above 0")
        return [low, high], "log"
    if more is not None and not (is_number(more) and 0 < more <= high - low):
        raise ValueError(f"{name}: the third of {written!r} must be log or a step between 0 and {high - low:g}")
    return [low, high], more


def _distribution(method: str, name: str, written: Any) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    values, more = _read(name, written)
    if more == "choices":
        return CategoricalDistribution(values)
    low, high = values
    kinds = {field.name: field.type for field in fields(composition.method_of(method))}
    step = None if more in (None, "log") else more
    if kinds[name] in (int, "int"):
        if any(value != int(value) for value in (low, high, step or 1)):
            raise ValueError(f"{name}: {written!r} must be of whole numbers")
        return IntDistribution(int(low), int(high), log=more == "log", step=int(step or 1))
    return FloatDistribution(float(low), float(high), log=more == "log", step=None if step is None else float(step))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
