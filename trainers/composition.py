"""Names such as `sovr+awp`: a base method and its wrappers. Torch is loaded only when a method is built."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from trainers.method import Method, is_number, is_too_large
from trainers.plugins import declarations
from trainers.plugins.registry import METHODS, WRAPPERS
from trainers.plugins.spelling import nearest


def method_names() -> list[str]:
    return METHODS.names()


def parse(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the base method and the wrappers of a name.

    Wrappers are sorted, because their order changes nothing. Raise ValueError, with suggestions, for an unknown name.
    """
    base, *wrappers = name.split("+")
    if base not in METHODS:
        if base in WRAPPERS:
            raise ValueError(f"{name!r} has no method before its wrapper; write for example at+{base}")
        names, has_file = method_names(), base.isidentifier() and Path(f"{base}.py").is_file()
        hint = f"; to use {base}.py from this folder, add --plugin {base}.py;" if has_file else nearest(base, names)
        raise ValueError(f"unknown method {base!r}{hint} known: {', '.join(names)}")
    for wrapper in wrappers:
        listed = ", ".join(WRAPPERS.names())
        if wrapper in METHODS:
            raise ValueError(f"{name!r} composes two methods, {base} and {wrapper}; only {listed} may follow a +")
        if wrapper not in WRAPPERS:
            hint = nearest(wrapper, WRAPPERS.names())
            raise ValueError(f"unknown wrapper {wrapper!r} in {name!r}{hint} known: {listed}")
        if wrappers.count(wrapper) > 1:
            raise ValueError(f"{name!r} has +{wrapper} {wrappers.count(wrapper)} times; once is enough")
        for excluded, reason in WRAPPERS.get(wrapper).excludes.items():
            if excluded in wrappers:
                raise ValueError(f"{name!r}: {excluded} and {wrapper} {reason}; choose one")
    return base, tuple(sorted(wrappers))


def canonical(name: str) -> str:
    """Return the name with its wrappers in their fixed order."""
    base, wrappers = parse(name)
    return "+".join((base, *wrappers))


def build(name: str, hyperparameters: dict[str, Any] | None = None) -> Method:
    """Return the base method with these hyperparameters. The training loop adds the wrappers."""
    return _configured(METHODS.get(parse(name)[0]), name, hyperparameters)


def _configured(method: type[Method], name: str, hyperparameters: dict[str, Any] | None) -> Method:
    values = dict(hyperparameters or {})
    types = {field.name: field.type for field in fields(method)}
    faults = [
        f"unknown hyperparameter {key!r}{nearest(key, types)} known: {', '.join(types) or 'none'}"
        for key in values
        if key not in types
    ]
    try:
        built = method(**{key: _typed(value, types[key]) for key, value in values.items() if key in types})
    except ValueError as error:
        faults.append(str(error))
    except Exception as error:  # a class with checks of its own may raise anything
        kind, message = type(error).__name__, str(error)
        raise ValueError(f"method {name!r} cannot be built: {kind}{message and ': '}{message}") from error
    if faults:
        raise ValueError(f"method {name!r}: {'; '.join(faults)}")
    return built


def resolved_hyperparameters(name: str, hyperparameters: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return every hyperparameter with its value, defaults included. Equal settings give equal dictionaries."""
    method = _configured(method_of(name), name, hyperparameters)
    return {field.name: getattr(method, field.name) for field in fields(method)}


def method_of(name: str) -> type[Method]:
    """Return the declaration of the base method; `build` returns one that has a loss."""
    return declarations.method(parse(name)[0])


def display_name(name: str) -> str:
    """Return the name as tables write it, such as SOVR+AWP."""
    base, wrappers = parse(name)
    display = declarations.method(base).display or (base.upper() if base in METHODS.shipped else base)
    return "+".join((display, *(WRAPPERS.get(wrapper).display for wrapper in wrappers)))


def _typed(value: Any, declared: Any) -> Any:
    """Convert a value to its declared type: 40.0 to the int 40, 1 to 1.0, and 'inf' from text files to infinity."""
    number = is_number(value) and not is_too_large(value)
    if declared in (int, "int") and number and value == value // 1:
        return int(value)
    if declared in (float, "float") and (number or value in ("inf", "-inf")):
        return float(value)
    if declared in (bool, "bool") and number and value in (0, 1):
        return bool(value)
    return value
