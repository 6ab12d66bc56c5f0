"""Distances between produced and expected values, leaf by leaf. A missing value counts as a mismatch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Tolerance:
    relative: float = 1e-9
    absolute: float = 1e-11


@dataclass(frozen=True)
class Difference:
    field: str
    error: float  # largest absolute difference
    fault: str | None  # the reason for a mismatch


def compare(expected: Any, produced: Any, tolerance: Tolerance, field: str = "") -> Iterator[Difference]:
    if isinstance(expected, dict):
        if not isinstance(produced, dict):
            yield Difference(field, math.inf, "is not computed")
            return
        for key, value in expected.items():
            name = f"{field}.{key}" if field else str(key)
            if key not in produced:
                yield Difference(name, math.inf, "is not computed")
            else:
                yield from compare(value, produced[key], tolerance, name)
    elif isinstance(expected, list) and expected and isinstance(expected[0], dict):
        pairs = produced if isinstance(produced, list) else []
        if len(pairs) != len(expected):
            yield Difference(field, math.inf, f"has {len(pairs)} entries instead of {len(expected)}")
            return
        for number, (value, other) in enumerate(zip(expected, pairs, strict=True)):
            yield from compare(value, other, tolerance, f"{field}[{number}]")
    else:
        yield _leaf(expected, produced, tolerance, field)


def _leaf(expected: Any, produced: Any, tolerance: Tolerance, field: str) -> Difference:
    if expected is None or produced is None:
        same = expected is None and produced is None
        return Difference(field, 0.0 if same else math.inf, None if same else f"{produced} instead of {expected}")
    try:
        wanted, found = _numbers(expected), _numbers(produced)
    except (TypeError, ValueError, OverflowError):
        return Difference(field, math.inf, "is no array of numbers")
    if wanted.shape != found.shape:
        return Difference(field, math.inf, f"has shape {found.shape} instead of {wanted.shape}")
    with np.errstate(invalid="ignore"):
        error = np.where(wanted == found, 0.0, np.abs(wanted - found))
    error = np.where(np.isnan(error), math.inf, error)
    allowed = tolerance.absolute + tolerance.relative * np.abs(np.where(np.isinf(wanted), 0.0, wanted))
    largest = float(error.max(initial=0.0))
    if (error <= allowed).all():
        return Difference(field, largest, None)
    worst = np.unravel_index(int(np.argmax(error - allowed)), error.shape)
    place = f" at {[int(i) for i in worst]}" if worst else ""
    return Difference(field, largest, f"{float(found[worst])!r} instead of {float(wanted[worst])!r}{place}")


def _numbers(value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    return np.asarray(value, dtype=np.float64)
