"""Names such as `sovr+awp`: a base method and what is composed over it. Torch loads only when a method is built."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from trainers import declared
from trainers.method import Method, is_number, is_too_large
from trainers.registry import METHODS, WRAPPERS
from trainers.spelling import nearest


def method_names() -> list[str]:
    return METHODS.names()


def parse(name: str) -> tuple[str, tuple[str, ...]]:
    """Base method and wrappers, these in one fixed order because their order changes nothing."""
    base, *wrappers = name.split("+")
    if base not in METHODS:
        if base in WRAPPERS:
            raise ValueError(f"{name!r} has no method before its wrapper; write for example at+{base}")
        known, beside = method_names(), base.isidentifier() and Path(f"{base}.py").is_file()
        hint = f"; {base}.py lies here, --plugin {base}.py takes it;" if beside else nearest(base, known)
        raise ValueError(f"unknown method {base!r}{hint} known: {', '.join(known)}")
    for wrapper in wrappers:
        listed = ", ".join(WRAPPERS.names())
        if wrapper in METHODS:
            raise ValueError(f"{name!r} composes two methods, {base} and {wrapper}; only {listed} go after a +")
        if wrapper not in WRAPPERS:
            hint = nearest(wrapper, WRAPPERS.names())
            raise ValueError(f"unknown wrapper {wrapper!r} in {name!r}{hint} known: {listed}")
        if wrappers.count(wrapper) > 1:
            raise ValueError(f"{name!r} has +{wrapper} {wrappers.count(wrapper)} times; once is enough")
        for other, reason in WRAPPERS.get(wrapper).excludes.items():
            if other in wrappers:
                raise ValueError(f"{name!r}: {other} and {wrapper} {reason}; choose one")
    return base, tuple(sorted(wrappers))


def canonical(name: str) -> str:
    base, wrappers = parse(name)
    return "+".join((base, *wrappers))


def build(name: str, hyperparameters: dict[str, Any] | None = None) -> Method:
    """The base method with these hyperparameters; wrappers are the training loop's."""
    return _made(METHODS.get(parse(name)[0]), name, hyperparameters)


def _made(method: type[Method], name: str, hyperparameters: dict[str, Any] | None) -> Method:
    given = dict(hyperparameters or {})
    types = {field.name: field.type for field in fields(method)}
    faults = [
        f"unknown hyperparameter {key!r}{nearest(key, types)} known: {', '.join(types) or 'none'}"
        for key in given
        if key not in types
    ]
    try:
        built = method(**{key: _typed(value, types[key]) for key, value in given.items() if key in types})
    except ValueError as error:
        faults.append(str(error))
    except Exception as error:  # a class that checks its fields itself may raise anything
        kind, message = type(error).__name__, str(error)
        raise ValueError(f"method {name!r} cannot be built: {kind}{message and ': '}{message}") from error
    if faults:
        raise ValueError(f"method {name!r}: {'; '.join(faults)}")
    return built


def resolved_hyperparameters(name: str, hyperparameters: dict[str, Any] | None = None) -> dict[str, Any]:
    """Every hyperparameter with its value, defaults included; equal settings give equal dictionaries."""
    method = _made(method_of(name), name, hyperparameters)
    return {field.name: getattr(method, field.name) for field in fields(method)}


def method_of(name: str) -> type[Method]:
    """What the base method declares; `build` makes one that has a loss."""
    return declared.method(parse(name)[0])


def display_name(name: str) -> str:
    base, wrappers = parse(name)
    shown = declared.method(base).display or (base.upper() if base in METHODS.shipped else base)
    return "+".join((shown, *(WRAPPERS.get(wrapper).display for wrapper in wrappers)))


def _typed(value: Any, declared: Any) -> Any:
    """40.0 is the whole number 40, 1 the weight 1.0, and text files write infinity as 'inf'."""
    number = is_number(value) and not is_too_large(value)
    if declared in (int, "int") and number and value == value // 1:
        return int(value)
    if declared in (float, "float") and (number or value in ("inf", "-inf")):
        return float(value)
    if declared in (bool, "bool") and number and value in (0, 1):
        return bool(value)
    return value
