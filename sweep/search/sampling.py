"""The sampler of every search: Optuna's, without repeated configurations and with rounded values."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from sweep.store.encoding import canonical, canonical_json
from sweep.studies.grid import grid_points

ATTEMPTS = 10


class Distinct(BaseSampler):
    """A wrapper of Optuna's sampler that proposes no point twice, since a repeat would waste a training.

    `gp` models the objective as a smooth noisy function, which fits: with few trainings it learns more than `tpe`.
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
        # The grid is nearly exhausted, and the sampler would keep proposing its favourite point.
        unseen = [point for point in grid_points(search_space) if canonical_json(point) not in seen]
        return unseen[int(self._generator.integers(len(unseen)))] if unseen else point

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        return canonical(self._random.sample_independent(study, trial, param_name, param_distribution))
