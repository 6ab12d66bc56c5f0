"""The power of the tests that decide: the differences that a number of seeds can find, and the seeds needed to decide.

A `Critical` returns the value that Welch's |t| must exceed, for each of the given degrees of freedom.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import cache, partial

import numpy as np
from scipy.special import chdtrc, nctdtr, roots_jacobi, stdtrit

from reports.analysis.statistics import ALPHA, NO_SPREAD, Sample, t3_p

POWER = 0.8
MOST_SEEDS = 200  # a difference that needs more is called too small to settle with seeds
NODES = 40

Critical = Callable[[np.ndarray], np.ndarray]


def welch_critical(level: float = ALPHA) -> Critical:
    """Return the critical values of Welch's two-sided test. Holm's first step is at ALPHA / size of the family."""
    return partial(_student, level)


def _student(level: float, freedom: np.ndarray) -> np.ndarray:
    return np.asarray(stdtrit(freedom, 1 - level / 2))


@cache
def t3_critical(groups: int) -> Critical:
    """Return the critical values of Dunnett's T3 among this number of methods."""
    from scipy.interpolate import PchipInterpolator

    freedoms = np.geomspace(1.0, 4.0 * MOST_SEEDS, 24)
    values = [_t3_quantile(groups, freedom) for freedom in freedoms]
    smooth = PchipInterpolator(np.log(freedoms), np.log(values))
    return lambda freedom: np.exp(smooth(np.log(freedom)))


def _t3_quantile(groups: int, freedom: float) -> float:
    low, high = 0.0, math.log(1e4)
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if t3_p(math.exp(middle), freedom, groups) > ALPHA else (low, middle)
    return math.exp(high)


def power(difference: float, stds: tuple[float, float], seeds: tuple[int, int], critical: Critical) -> float:
    """Return how often this many seeds find a true difference with its sign, given the true standard deviations.

    Exact for normal values: given the ratio of the two estimated variances, Welch's degrees of freedom are fixed and
    the rest is a noncentral t. The ratio is integrated out by Gauss-Jacobi quadrature.
    """
    freedoms = seeds[0] - 1, seeds[1] - 1
    share, weight = _shares(*freedoms)
    first = stds[0] ** 2 * share / (freedoms[0] * seeds[0])
    second = stds[1] ** 2 * (1 - share) / (freedoms[1] * seeds[1])
    welch = (first + second) ** 2 / (first**2 / freedoms[0] + second**2 / freedoms[1])
    error = math.sqrt(stds[0] ** 2 / seeds[0] + stds[1] ** 2 / seeds[1])
    bound = critical(welch) * np.sqrt(sum(freedoms) * (first + second)) / error
    shift = abs(difference) / error
    missed = nctdtr(sum(freedoms), shift, bound)
    # scipy returns NaN at some large shifts. There the spread of the normal part is negligible beside its shift.
    limit = chdtrc(sum(freedoms), sum(freedoms) * (shift / bound) ** 2)
    return float(weight @ (1 - np.where(np.isnan(missed), limit, missed)))


@cache
def _shares(first: int, second: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights for the first estimate's share in the sum of both variances.

    In units of the true variances this share has a beta distribution.
    """
    nodes, weights = roots_jacobi(NODES, second / 2 - 1, first / 2 - 1)
    return (1 + nodes) / 2, weights / weights.sum()


def detectable_difference(first: Sample, second: Sample, critical: Critical) -> float | None:
    """Return the smallest true difference that these numbers of seeds find in 4 of 5 repetitions.

    The spreads seen are taken for the true ones. None if they are unknown or zero.
    """
    if not _testable(first, second):
        return None
    stds, seeds = (first.std, second.std), (first.n, second.n)
    high = max(stds)
    while power(high, stds, seeds, critical) < POWER:
        high *= 2
    low = 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle, stds, seeds, critical) < POWER else (low, middle)
    return high


def seeds_needed(first: Sample, second: Sample, critical: Critical) -> int | None:
    """Return the seeds per method, more than there are now, that decide in 4 of 5 repetitions.

    Means and spreads seen are taken for the true ones. None if the spread is unknown or zero, or if more than
    MOST_SEEDS would be needed.
    """
    if not _testable(first, second):
        return None
    difference, stds = first.mean - second.mean, (first.std, second.std)
    numbers = range(min(first.n, second.n) + 1, MOST_SEEDS + 1)
    index = bisect_left(numbers, POWER, key=lambda n: power(difference, stds, (n, n), critical))
    return numbers[index] if index < len(numbers) else None


def _testable(first: Sample, second: Sample) -> bool:
    return first.spread_known and second.spread_known and max(first.std, second.std) >= NO_SPREAD
