"""Names such as `sovr+awp`: a base method and what is composed over it. Torch loads only when a method is built."""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from trainers import methods, plugins

if TYPE_CHECKING:
    from trainers.method import Method

WRAPPERS = ("awp", "seat", "ddpm")
DISPLAY = {"weighted_ce": "Weighted CE", "weighted_ovr": "Weighted OVR"}


def method_names() -> list[str]:
    return [*methods.names(), *plugins.names()]


def parse(name: str) -> tuple[str, tuple[str, ...]]:
    """Base method and wrappers, these in one fixed order because their order changes nothing."""
    base, *wrappers = name.split("+")
    known = method_names()
    if base not in known:
        if base in WRAPPERS:
            raise ValueError(f"{name!r} has no method before its wrapper; write for example at+{base}")
        raise ValueError(f"unknown method {base!r}{_nearest(base, known)} known: {', '.join(known)}")
    for wrapper in wrappers:
        if wrapper in known:
            raise ValueError(f"{name!r} composes two methods, {base} and {wrapper}; only {_listed()} go after a +")
        if wrapper not in WRAPPERS:
            raise ValueError(f"unknown wrapper {wrapper!r} in {name!r}{_nearest(wrapper, WRAPPERS)} known: {_listed()}")
        if wrappers.count(wrapper) > 1:
            raise ValueError(f"{name!r} has +{wrapper} {wrappers.count(wrapper)} times; once is enough")
    if "seat" in wrappers and "ddpm" in wrappers:
        raise ValueError(f"{name!r}: seat and ddpm both average the weights; choose one")
    return base, tuple(wrapper for wrapper in WRAPPERS if wrapper in wrappers)


def canonical(name: str) -> str:
    base, wrappers = parse(name)
    return "+".join((base, *wrappers))


def build(name: str, hyperparameters: dict[str, Any] | None = None, *, declared: type[Method] | None = None) -> Method:
    """The base method with these hyperparameters; wrappers are the training loop's."""
    base, _ = parse(name)
    method = declared or method_class(base)
    given = dict(hyperparameters or {})
    types = {field.name: field.type for field in fields(method)}
    faults = [
        f"unknown hyperparameter {key!r}{_nearest(key, types)} known: {', '.join(types) or 'none'}"
        for key in given
        if key not in types
    ]
    try:
        built = method(**{key: _typed(value, types[key]) for key, value in given.items() if key in types})
    except ValueError as error:
        faults.append(str(error))
    if faults:
        raise ValueError(f"method {name!r}: {'; '.join(faults)}")
    return built


def resolved_hyperparameters(
    name: str, hyperparameters: dict[str, Any] | None = None, *, declared: type[Method] | None = None
) -> dict[str, Any]:
    """Every hyperparameter with its value, defaults included; equal settings give equal dictionaries.

    `declared` is a class with the method's fields alone, where the method itself need not load.
    """
    method = build(name, hyperparameters, declared=declared)
    return {field.name: getattr(method, field.name) for field in fields(method)}


def method_class(base: str) -> type[Method]:
    return plugins.load(base) if base in plugins.names() else methods.load(base)


def display_name(name: str) -> str:
    base, wrappers = parse(name)
    shown = base if base in plugins.names() else DISPLAY.get(base, base.upper())
    return "+".join((shown, *(wrapper.upper() for wrapper in wrappers)))


def _typed(value: Any, declared: Any) -> Any:
    """40.0 is the whole number 40, 1 the weight 1.0, and text files write infinity as 'inf'."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if declared in (int, "int") and number and value == value // 1:
        return int(value)
    if declared in (float, "float") and (number or value in ("inf", "-inf")):
        return float(value)
    if declared in (bool, "bool") and number and value in (0, 1):
        return bool(value)
    return value


def _nearest(name: str, known: Any) -> str:
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ";"


def _listed() -> str:
    return ", ".join(WRAPPERS)
