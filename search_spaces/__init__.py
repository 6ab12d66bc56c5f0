"""What a search varies, as Optuna distributions: one small file per method, found by its name. Loads no torch."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

KINDS = ("paper", "fine", "continuous")


def names() -> tuple[str, ...]:
    """Methods that have something to search."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py")))


def space(method: str, kind: str = "paper") -> dict[str, BaseDistribution]:
    """The distributions for a method such as sovr or sovr+awp; empty where nothing is to be searched.

    A file that has no finer grid has the paper's.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown search space {kind!r}; known: {', '.join(KINDS)}")
    module, wrappers = _file_of(method)
    if module is None:
        return {}
    spaces = module.SPACES
    kind = kind if kind in spaces else "paper"
    for wrapper in wrappers:
        if f"{kind}+{wrapper}" in spaces:
            return dict(spaces[f"{kind}+{wrapper}"])
    return dict(spaces[kind])


def paper_value(method: str, dataset: str, model: str) -> dict[str, Any] | None:
    """What the paper uses: for the wrapper, else for data set and network, else for CIFAR10 with PreActResNet-18."""
    module, wrappers = _file_of(method)
    if module is None:
        return None
    values = module.PAPER_VALUES
    for key in (*(f"+{wrapper}" for wrapper in wrappers), f"{dataset}/{model}", dataset, "default"):
        if key in values:
            return dict(values[key])
    return None


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Steps of 0.1 add up to 0.6000000000000001; a trial is named by 0.6."""
    return {key: float(f"{value:.12g}") if isinstance(value, float) else value for key, value in values.items()}


def _file_of(method: str) -> tuple[ModuleType | None, list[str]]:
    base, *wrappers = method.split("+")
    return (importlib.import_module(f"search_spaces.{base}") if base in names() else None), wrappers
