"""Tests for a handful of seeds: t-tests, Holm, effect sizes, intervals, power, and paired tests over test images.

Everything works from raw values and from a printed mean, standard deviation and n. A test that the numbers do not
allow (one seed, no variation) gives no p-value and says why, rather than a p of 0 or 1.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from scipy.special import bdtr, gammaln, nctdtr, stdtr, stdtrit

ALPHA = 0.05
POWER = 0.8
QUANTILE = 1.959963984540054  # of the normal distribution at 97.5 %
MOST_SEEDS = 200  # beyond this a difference is called too small to settle with seeds
Sides = Literal["two-sided", "greater", "less"]

# Values are counts divided by the number of test images: a spread below this is rounding, not variation.
NO_SPREAD = 1e-9


@dataclass(frozen=True)
class Sample:
    """What is known of one cell: mean, standard deviation (ddof=1, NaN for one value) and n."""

    mean: float
    std: float
    n: int
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        if not len(values):
            raise ValueError("a sample needs at least one value")
        array = np.asarray(values, dtype=float)
        std = float(array.std(ddof=1)) if len(array) > 1 else math.nan
        return cls(float(array.mean()), std, len(array), tuple(map(float, array)))

    @property
    def spread_known(self) -> bool:
        return self.n > 1 and not math.isnan(self.std)


@dataclass(frozen=True)
class Comparison:
    """`first` minus `second`. p-values are None where `undefined` says why."""

    difference: float
    student: float | None
    welch: float | None
    low: float | None  # 95 % interval of the difference, Welch
    high: float | None
    hedges_g: float | None
    undefined: str = ""
    student_holm: float | None = None
    welch_holm: float | None = None

    @property
    def significant(self) -> bool | None:
        """By Welch after Holm where it was applied; None if no test is possible."""
        p = self.welch if self.welch_holm is None else self.welch_holm
        return None if p is None else p < ALPHA


def compare(first: Sample, second: Sample, sides: Sides = "two-sided") -> Comparison:
    """`greater` asks whether first's mean is the larger one."""
    difference = first.mean - second.mean
    if not (first.spread_known and second.spread_known):
        small = min(first.n, second.n)
        why = f"n={small}: no test with a single seed" if small < 2 else "no standard deviation is known"
        return Comparison(difference, None, None, None, None, None, why)
    variances = first.std**2 / first.n, second.std**2 / second.n
    error = math.sqrt(sum(variances))
    if error < NO_SPREAD:
        return Comparison(difference, None, None, None, None, None, "no variation between the seeds: t is undefined")
    freedom = first.n + second.n - 2
    pooled = math.sqrt(((first.n - 1) * first.std**2 + (second.n - 1) * second.std**2) / freedom)
    welch_freedom = sum(variances) ** 2 / (variances[0] ** 2 / (first.n - 1) + variances[1] ** 2 / (second.n - 1))
    t_student = difference / (pooled * math.sqrt(1 / first.n + 1 / second.n))
    t_welch = difference / error
    reach = float(stdtrit(welch_freedom, 0.975)) * error
    return Comparison(
        difference,
        _p_value(t_student, freedom, sides),
        _p_value(t_welch, welch_freedom, sides),
        difference - reach,
        difference + reach,
        _small_sample_factor(freedom) * difference / pooled,
    )


def _p_value(t: float, freedom: float, sides: Sides) -> float:
    if sides == "two-sided":
        return float(2 * stdtr(freedom, -abs(t)))
    return float(stdtr(freedom, -t if sides == "greater" else t))


def _small_sample_factor(freedom: int) -> float:
    """Hedges' exact correction of Cohen's d, which overstates an effect by 25 % at n=3 against 3."""
    return math.exp(gammaln(freedom / 2) - gammaln((freedom - 1) / 2)) / math.sqrt(freedom / 2) if freedom > 1 else 0.0


def interval(sample: Sample, level: float = 0.95) -> tuple[float, float] | None:
    """Where the mean lies, by Student's t; None for a single seed."""
    if not sample.spread_known:
        return None
    reach = float(stdtrit(sample.n - 1, (1 + level) / 2)) * sample.std / math.sqrt(sample.n)
    return sample.mean - reach, sample.mean + reach


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction over those that exist.

    statsmodels' multipletests gives the same but collects garbage on every call: seconds for a few tables.
    """
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        corrected[index] = largest
    return corrected


def compare_family(
    samples: Sequence[Sample | None], reference: int, sides: Sides = "two-sided"
) -> list[Comparison | None]:
    """Every sample against the reference one, Holm-corrected over the family. None at holes and at the reference."""
    base = samples[reference]
    if base is None:
        return [None] * len(samples)
    plain = [
        None if sample is None or index == reference else compare(sample, base, sides)
        for index, sample in enumerate(samples)
    ]
    student = holm([one.student if one else None for one in plain])
    welch = holm([one.welch if one else None for one in plain])
    return [one and replace(one, student_holm=s, welch_holm=w) for one, s, w in zip(plain, student, welch, strict=True)]


@cache
def detectable_effect(n: int) -> float:
    """The smallest true difference, in standard deviations, that a two-sided t-test of n against n seeds finds with
    80 % power at 5 %.

    statsmodels' solve_power gives the same, but its import and its search take seconds of a report.
    """
    if n < 2:
        return math.inf
    freedom = 2 * (n - 1)
    critical = float(stdtrit(freedom, 1 - ALPHA / 2))
    low, high = 0.0, 10.0  # at two seeds it is 5.7
    while high - low > 1e-12:
        effect = (low + high) / 2
        shift = effect * math.sqrt(n / 2)
        found = 1 - nctdtr(freedom, shift, critical) + nctdtr(freedom, shift, -critical)
        low, high = (effect, high) if found < POWER else (low, effect)
    return high


def detectable_difference(first: Sample, second: Sample) -> float | None:
    spread = pooled_std(first, second)
    return None if spread is None else detectable_effect(min(first.n, second.n)) * spread


def pooled_std(first: Sample, second: Sample) -> float | None:
    known = [sample for sample in (first, second) if sample.spread_known]
    freedom = sum(sample.n - 1 for sample in known)
    if not freedom:
        return None
    return math.sqrt(sum((sample.n - 1) * sample.std**2 for sample in known) / freedom)


def undecided_level(family: Iterable[Comparison | None]) -> float:
    """What Welch's p of an undecided comparison must fall below for Holm to call it significant, all else unchanged.

    Those already significant come before it in Holm's order; of the rest it must then be the first.
    """
    rest = sum(one is not None and one.significant is False for one in family)
    return ALPHA / max(1, rest)


def seeds_needed(first: Sample, second: Sample, level: float = ALPHA) -> int | None:
    """Seeds per method, more than there are, at which Welch's two-sided test at this level has 80 % power if the true
    means and spreads are the ones seen.

    None if the spread is unknown or zero, or if more than MOST_SEEDS would be needed.
    """
    if not (first.spread_known and second.spread_known) or max(first.std, second.std) < NO_SPREAD:
        return None
    numbers = range(min(first.n, second.n) + 1, MOST_SEEDS + 1)
    place = bisect_left(numbers, POWER, key=lambda n: welch_power(first, second, n, level))
    return numbers[place] if place < len(numbers) else None


def welch_power(first: Sample, second: Sample, n: int, level: float) -> float:
    """How often n against n seeds give a significant difference with the sign of the one seen.

    By a noncentral t. Welch's degrees of freedom come from spreads estimated again each time, which makes them fewer
    than at the true spreads; with the mean squares of those estimates the power agrees with simulations to one percent.
    """
    variances = first.std**2, second.std**2
    total, squares = sum(variances), sum(variance**2 for variance in variances)
    freedom = (n - 1) * ((n - 1) * total**2 + 2 * squares) / ((n + 1) * squares)
    shift = abs(first.mean - second.mean) / math.sqrt(total / n)
    critical = float(stdtrit(freedom, 1 - level / 2))
    return float(1 - nctdtr(freedom, shift, critical))


def mcnemar(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Exact two-sided p of each row (a seed) over its columns (images): do the two models fail on different images?

    Only images that one of the two survives count. Twice the binomial tail; statsmodels gives the same number.
    """
    if first.shape != second.shape:
        raise ValueError(f"verdicts of shapes {first.shape} and {second.shape} cannot be paired")
    only_first, only_second = _count(first & ~second), _count(~first & second)
    return np.minimum(1.0, 2 * bdtr(np.minimum(only_first, only_second), only_first + only_second, 0.5))


def _count(verdicts: np.ndarray) -> np.ndarray:
    """True ones in each row; as bits, which is five times faster than a sum of booleans."""
    return np.bitwise_count(np.packbits(verdicts, axis=-1)).sum(axis=-1, dtype=np.int64)


def paired_bootstrap(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """Difference of accuracy and its 95 % percentile interval when the test images are drawn again.

    Each array is seeds x images. It answers what another test set of this size would show for these very models;
    the t-tests answer what other seeds would show on this test set. The resampling distribution of a mean is known
    from the moments of what is drawn, so its quantiles are computed (Cornish and Fisher, with skewness) and not drawn:
    at hundreds of images that is closer than ten thousand draws, and the same every time.
    """
    if first.shape[-1] != second.shape[-1]:
        raise ValueError(f"verdicts over {first.shape[-1]} and {second.shape[-1]} images cannot be paired")
    per_image = np.atleast_2d(first).mean(axis=0) - np.atleast_2d(second).mean(axis=0)
    mean = float(per_image.mean())
    spread = float(per_image.std())
    if spread < NO_SPREAD:
        return mean, mean, mean
    error = spread / math.sqrt(per_image.size)
    away = per_image - mean
    skewness = float((away * away * away).mean()) / spread**3  # numpy's ** 3 is a hundred times slower
    tilt = skewness * (QUANTILE**2 - 1) / (6 * math.sqrt(per_image.size))
    return mean, mean + error * (tilt - QUANTILE), mean + error * (tilt + QUANTILE)
