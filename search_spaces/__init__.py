"""What a search varies, as Optuna distributions: one small file per method, found by its name. Loads no torch."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

KINDS = ("paper", "fine", "continuous")
RADIUS = 8 / 255  # of training, in the paper
PLACES = 4  # of a length in a ball of this radius


def names() -> tuple[str, ...]:
    """Methods that have something to search."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py")))


def space(method: str, kind: str = "paper", radius: float = RADIUS) -> dict[str, BaseDistribution]:
    """The distributions for a method such as sovr or sovr+awp; empty where nothing is to be searched.

    A file that has no finer grid has the paper's. Lengths are multiples of the radius of training.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown search space {kind!r}; known: {', '.join(KINDS)}")
    module, wrappers = _file_of(method)
    if module is None:
        return {}
    spaces = module.SPACES
    kind = kind if kind in spaces else "paper"
    key = next((f"{kind}+{one}" for one in wrappers if f"{kind}+{one}" in spaces), kind)
    lengths = getattr(module, "IN_RADII", {})
    return {
        name: _at_radius(item, radius, lengths[name]) if name in lengths else item for name, item in spaces[key].items()
    }


def paper_value(method: str, dataset: str, model: str, radius: float = RADIUS) -> dict[str, Any] | None:
    """What the paper uses: for the wrapper, else for data set and network, else for CIFAR10 with PreActResNet-18.

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
    """Steps of 0.1 add up to 0.6000000000000001; a trial is named by 0.6."""
    return {key: float(f"{value:.12g}") if isinstance(value, float) else value for key, value in values.items()}


def _at_radius(item: BaseDistribution, radius: float, most: float) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if isinstance(item, CategoricalDistribution):
        return CategoricalDistribution(tuple(dict.fromkeys(_length(one, radius, most) for one in item.choices)))
    assert isinstance(item, FloatDistribution)
    return FloatDistribution(_length(item.low, radius, most), _length(item.high, radius, most), log=item.log)


def _length(multiple: Any, radius: float, most: float) -> float:
    """With as many digits as its authors wrote at the paper's radius, and never beyond what is legal."""
    places = PLACES - (math.floor(math.log10(radius / RADIUS)) if radius > 0 else 0)
    return min(most, round(float(multiple) * radius, places))


def _file_of(method: str) -> tuple[ModuleType | None, list[str]]:
    base, *wrappers = method.split("+")
    return (importlib.import_module(f"search_spaces.{base}") if base in names() else None), wrappers
