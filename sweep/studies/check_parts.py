"""Checks of recipes, selections and radii, and tolerant readers for content that is not validated yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from sweep.studies.file import Fault, faults_of, merged
from trainers.config import Recipe
from trainers.values import as_float

WHOLE = TypeAdapter(int)
LINF = "linf"

# Usual radii on CIFAR-10 in the other norms.
RADII = {"l2": {"epsilon": "128/255", "step_size": "15/255"}, "l1": {"epsilon": "12", "step_size": "1"}}


def part_faults(
    model: type[BaseModel],
    path: str,
    value: dict[str, Any],
    base: dict[str, Any] | None = None,
    norm: str | None = None,
) -> Iterator[Fault]:
    """Yield the faults of a recipe or selection, or of an override of one; faults of the base are not repeated."""
    if base is not None and not value:
        return
    whole = value if base is None else merged(base, value)
    known = set() if base is None else {fault.path for fault in _validate(model, base, path)}
    yield from (fault for fault in _validate(model, whole, path) if fault.path not in known)
    radii, place = (as_mapping(value, "attack"), f"{path}.attack") if model is Recipe else (value, path)
    given = as_mapping(whole, "attack") if model is Recipe else whole
    norm = norm or norm_of(given)
    for key in ("epsilon", "step_size"):
        yield from radius_faults(radii, f"{place}.{key}", norm)
    if base is None or "norm" in radii:
        yield from missing_radii(given, place, norm)


def _validate(model: type[BaseModel], value: dict[str, Any], path: str) -> list[Fault]:
    try:
        model.model_validate(value)
    except ValidationError as error:
        return faults_of(error, model, path)
    return []


def norm_of(*places: Any) -> str:
    """Return the norm of the first mapping that names one; the default is linf."""
    named = [place.get("norm") for place in places if isinstance(place, dict)]
    return str(next(filter(None, named), LINF))


def missing_radii(
    mapping: dict[str, Any], path: str, norm: str, keys: Sequence[str] = ("epsilon", "step_size")
) -> Iterator[Fault]:
    """Yield a fault for each radius that is missing under another norm than L∞.

    The defaults are L∞ radii; 8/255 in L2 would be almost no attack, unnoticed.
    """
    for key in keys:
        if norm in RADII and mapping.get(key) is None:
            rule = f"must be given for norm {norm}, for example {RADII[norm][key]}; its default is one of linf"
            yield Fault(f"{path}.{key}", rule, shows_value=False)


def radius_faults(mapping: dict[str, Any], path: str, norm: str = LINF) -> Iterator[Fault]:
    if norm != LINF:
        return
    value = mapping.get(path.rpartition(".")[2])
    try:
        too_large = value is not None and as_float(value) > 1
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        return  # reported by the shape's own check
    if too_large:
        yield Fault(path, "must be at most 1: pixels lie in [0, 1], so write for example 8/255", value)


def as_whole(value: Any) -> int | None:
    """Return a value such as 2000, 2e3 or '2000' as the integer that the study reads, or None if it is not one."""
    try:
        return None if value is None else WHOLE.validate_python(value)
    except ValidationError:
        return None


def as_list(content: dict[str, Any], key: str) -> list[Any]:
    value = content.get(key)
    return list(value) if isinstance(value, list | tuple) else []


def as_mapping(content: dict[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}
