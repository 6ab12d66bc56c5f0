"""Search spaces as Optuna distributions: one small file per method, found by its name. Loads no torch."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

KINDS = ("paper", "fine", "continuous")
RADIUS = 8 / 255  # training radius in the paper
PLACES = 4  # decimal places of a length in a ball of this radius


def names() -> tuple[str, ...]:
    """Return the methods that have hyperparameters to search."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py")))


def space(method: str, kind: str = "paper", radius: float = RADIUS) -> dict[str, BaseDistribution]:
    """Return the distributions for a method such as sovr or sovr+awp; empty if it has nothing to search.

    A method without a finer grid gets the paper's. Lengths are multiples of the training radius.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown search space {kind!r}; known: {', '.join(KINDS)}")
    module, wrappers = _file_of(method)
    if module is None:
        return {}
    spaces = module.SPACES
    kind = kind if kind in spaces else "paper"
    key = next((f"{kind}+{wrapper}" for wrapper in wrappers if f"{kind}+{wrapper}" in spaces), kind)
    lengths = getattr(module, "IN_RADII", {})
    return {
        name: _at_radius(item, radius, lengths[name]) if name in lengths else item for name, item in spaces[key].items()
    }


def paper_value(method: str, dataset: str, model: str, radius: float = RADIUS) -> dict[str, Any] | None:
    """Return the hyperparameters that the paper uses, or None for a method without a search space.

    The most specific entry wins: for a wrapper, then for data set and network, then for CIFAR10 with PreActResNet-18.
    At another radius than the paper's, lengths are the same multiples of it.
    """
    module, wrappers = _file_of(method)
    if module is None:
        return None
    values = module.PAPER_VALUES
    for key in (*(f"+{wrapper}" for wrapper in wrappers), f"{dataset}/{model}", dataset, "default"):
        if key in values:
            lengths = getattr(module, "IN_RADII", {})
            return {
                name: _length(value, radius, lengths[name]) if name in lengths else value
                for name, value in values[key].items()
            }
    return None


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Round floats to 12 digits: steps of 0.1 add up to 0.6000000000000001, but a trial is named by 0.6."""
    return {key: float(f"{value:.12g}") if isinstance(value, float) else value for key, value in values.items()}


def _at_radius(item: BaseDistribution, radius: float, most: float) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if isinstance(item, CategoricalDistribution):
        return CategoricalDistribution(tuple(dict.fromkeys(_length(choice, radius, most) for choice in item.choices)))
    assert isinstance(item, FloatDistribution)
    return FloatDistribution(_length(item.low, radius, most), _length(item.high, radius, most), log=item.log)


def _length(multiple: Any, radius: float, most: float) -> float:
    """Return the length with the precision that the authors use at the paper's radius, at most the legal maximum."""
    places = PLACES - (math.floor(math.log10(radius / RADIUS)) if radius > 0 else 0)
    return min(most, round(float(multiple) * radius, places))


def _file_of(method: str) -> tuple[ModuleType | None, list[str]]:
    base, *wrappers = method.split("+")
    return (importlib.import_module(f"search_spaces.{base}") if base in names() else None), wrappers
