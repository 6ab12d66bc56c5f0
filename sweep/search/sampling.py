"""The sampler behind every search: Optuna's, but no configuration twice, and values without float dust."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from sweep.errors import UserError
from sweep.store.encoding import canonical, canonical_json

ATTEMPTS = 10


class Distinct(BaseSampler):
    """Optuna's sampler, asked until the point is new to the study (a repeat is a wasted training).

    `gp` takes the objective for a smooth function under noise, which it is: few trainings tell it more than `tpe`.
    """

    def __init__(
        self, kind: str, space: Mapping[str, BaseDistribution], seed: int, generation: int, startup: int
    ) -> None:
        own = int(np.random.SeedSequence([seed, generation]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._informed: BaseSampler = (
                TPESampler(seed=own, multivariate=True, n_startup_trials=startup, constant_liar=True)
                if kind == "tpe"
                else GPSampler(seed=own, n_startup_trials=startup, deterministic_objective=False)
            )
        self._random = RandomSampler(seed=own)
        self._generator = np.random.default_rng(own)
        self._space = dict(sorted(space.items()))

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, BaseDistribution]:
        return self._space

    def sample_relative(self, study: Any, trial: Any, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        seen = {canonical_json(other.params) for other in study.get_trials(deepcopy=False) if other.params}
        for _ in range(ATTEMPTS):
            point = self._informed.sample_relative(study, trial, search_space) or {
                name: self._random.sample_independent(study, trial, name, item) for name, item in search_space.items()
            }
            point = {name: canonical(value) for name, value in point.items()}
            if canonical_json(point) not in seen:
                return point
        # A grid that is nearly used up: the sampler would go on to its favourite for ever.
        unseen = [point for point in grid_points(search_space) if canonical_json(point) not in seen]
        return unseen[int(self._generator.integers(len(unseen)))] if unseen else point

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        return canonical(self._random.sample_independent(study, trial, param_name, param_distribution))


def _values(name: str, item: BaseDistribution) -> list[Any]:
    if isinstance(item, CategoricalDistribution):
        return list(item.choices)
    if isinstance(item, IntDistribution) and not item.log:
        return list(range(item.low, item.high + 1, item.step))
    if isinstance(item, FloatDistribution) and item.step:
        count = int(round((item.high - item.low) / item.step)) + 1
        return [canonical(item.low + step * item.step) for step in range(count)]
    raise UserError(f"a grid needs steps, but {name} is continuous; use space: paper, steps, or sampler: gp")


def grid_points(space: Mapping[str, BaseDistribution]) -> list[dict[str, Any]]:
    """Every point of a stepped space, in a fixed order."""
    names = sorted(space)
    return [dict(zip(names, point, strict=True)) for point in itertools.product(*(_values(n, space[n]) for n in names))]


def widened(item: BaseDistribution, value: Any) -> BaseDistribution:
    """The distribution, or one that also holds a value outside of it: the paper used some beyond its own grid."""
    if item._contains(item.to_internal_repr(value)):
        return item
    if isinstance(item, IntDistribution):
        return IntDistribution(min(item.low, value), max(item.high, value))
    if isinstance(item, FloatDistribution):
        return FloatDistribution(min(item.low, value), max(item.high, value))
    if isinstance(item, CategoricalDistribution):
        return CategoricalDistribution((*item.choices, value))
    raise UserError(f"{value!r} is none of {item}")


def size(space: Mapping[str, BaseDistribution], extra: Iterable[Mapping[str, Any]]) -> float:
    """How many different candidates there are, these included; infinite if something is continuous."""
    try:
        points = grid_points(space)
    except UserError:
        return math.inf
    return len(points) + sum(canonical(dict(point)) not in points for point in extra)
