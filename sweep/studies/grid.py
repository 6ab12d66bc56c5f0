"""The points of a stepped space, and their number.

Optuna is imported only inside functions that take a space, whose creation has imported it already.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sweep.errors import UserError
from sweep.store.encoding import canonical

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def _values(name: str, item: BaseDistribution) -> list[Any]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(item, CategoricalDistribution):
        return list(item.choices)
    if isinstance(item, IntDistribution) and not item.log:
        return list(range(item.low, item.high + 1, item.step))
    if isinstance(item, FloatDistribution) and item.step:
        count = int(round((item.high - item.low) / item.step)) + 1
        return [canonical(item.low + step * item.step) for step in range(count)]
    raise UserError(f"a grid needs steps, but {name} is continuous; use space: paper, steps, or sampler: gp")


def grid_points(space: Mapping[str, BaseDistribution]) -> list[dict[str, Any]]:
    """Return all points of a stepped space in a fixed order."""
    names = sorted(space)
    return [dict(zip(names, point, strict=True)) for point in itertools.product(*(_values(n, space[n]) for n in names))]


def widened(item: BaseDistribution, value: Any) -> BaseDistribution:
    """Return the distribution, extended to include `value`; the paper used some values outside its own grid."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(item, CategoricalDistribution):
        return item if value in item.choices else CategoricalDistribution((*item.choices, value))
    if _takes(item, value):
        return item
    if isinstance(item, IntDistribution):
        return IntDistribution(min(item.low, value), max(item.high, value))
    if isinstance(item, FloatDistribution):
        return FloatDistribution(min(item.low, value), max(item.high, value))
    raise UserError(f"{value!r} is none of {item}")


def _takes(item: BaseDistribution, value: Any) -> bool:
    """Return whether an Optuna trial may take this value."""
    from optuna.trial import create_trial

    try:
        create_trial(params={"value": value}, distributions={"value": item}, value=0.0)
    except ValueError:
        return False
    return True


def size(space: Mapping[str, BaseDistribution], extra: Iterable[Mapping[str, Any]]) -> float:
    """Return the number of distinct candidates, including `extra`; infinite if a range is continuous."""
    try:
        values = {name: _values(name, item) for name, item in space.items()}
    except UserError:
        return math.inf
    others = {str(point): point for point in map(canonical, map(dict, extra))}.values()
    beyond = [point for point in others if any(point[name] not in known for name, known in values.items())]
    return math.prod(map(len, values.values())) + len(beyond)
