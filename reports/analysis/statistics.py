"""Tests for a handful of seeds: t-tests, Holm, T3, effect sizes, intervals, and paired tests over test images.

Everything works from raw values or from a printed mean, standard deviation and n. If the numbers allow no test (one
seed, no variation), the p-value is None and the reason is given, instead of a p of 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import bdtr, gammaln, ndtr, stdtr, stdtrit

ALPHA = 0.05
QUANTILE = 1.959963984540054  # of the normal distribution at 97.5 %
Sides = Literal["two-sided", "greater", "less"]

# Values are counts divided by the number of test images. A smaller spread is rounding, not variation.
NO_SPREAD = 1e-9


@dataclass(frozen=True)
class Sample:
    """The values of one cell: mean, standard deviation (ddof=1, NaN for a single value) and n."""

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
    """The difference `first` minus `second` with its tests. p-values are None where `undefined` gives the reason."""

    difference: float
    student: float | None
    welch: float | None
    low: float | None  # 95 % interval of the difference, Welch
    high: float | None
    hedges_g: float | None
    undefined: str = ""
    student_holm: float | None = None
    welch_holm: float | None = None
    t3: float | None = None  # against the best of a family, which the data chose

    @property
    def deciding(self) -> float | None:
        """Return the p-value that decides; None if no test is possible.

        It is T3 against the best, Welch after Holm against a fixed reference, and Welch otherwise.
        """
        if self.t3 is not None:
            return self.t3
        return self.welch if self.welch_holm is None else self.welch_holm

    @property
    def significant(self) -> bool | None:
        return None if self.deciding is None else self.deciding < ALPHA


def compare(first: Sample, second: Sample, sides: Sides = "two-sided") -> Comparison:
    """Test two samples by Student's and Welch's t-tests.

    sides: `greater` tests whether the mean of `first` is larger.
    """
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
    t_student = difference / (pooled * math.sqrt(1 / first.n + 1 / second.n))
    t_welch, welch_freedom = welch_t(first, second)
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
    """Return Hedges' exact correction of Cohen's d, which overstates effects by 25 % at n = 3 against 3."""
    return math.exp(gammaln(freedom / 2) - gammaln((freedom - 1) / 2)) / math.sqrt(freedom / 2) if freedom > 1 else 0.0


def interval(sample: Sample, level: float = 0.95) -> tuple[float, float] | None:
    """Return the confidence interval of the mean by Student's t; None for a single seed."""
    if not sample.spread_known:
        return None
    reach = float(stdtrit(sample.n - 1, (1 + level) / 2)) * sample.std / math.sqrt(sample.n)
    return sample.mean - reach, sample.mean + reach


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the p-values after Holm's step-down correction; None stays None and does not count.

    statsmodels' multipletests gives the same, but collects garbage on every call: seconds for a few tables.
    """
    ordered = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(ordered):
        largest = max(largest, min(1.0, (len(ordered) - rank) * p))
        corrected[index] = largest
    return corrected


def compare_family(
    samples: Sequence[Sample | None], reference: int, sides: Sides = "two-sided"
) -> list[Comparison | None]:
    """Compare every sample with the reference and correct over the family by Holm.

    None for missing samples and for the reference itself.
    """
    base = samples[reference]
    if base is None:
        return [None] * len(samples)
    plain = [
        None if sample is None or index == reference else compare(sample, base, sides)
        for index, sample in enumerate(samples)
    ]
    student = holm([comparison.student if comparison else None for comparison in plain])
    welch = holm([comparison.welch if comparison else None for comparison in plain])
    return [
        comparison and replace(comparison, student_holm=student_p, welch_holm=welch_p)
        for comparison, student_p, welch_p in zip(plain, student, welch, strict=True)
    ]


def compare_with_best(samples: Sequence[Sample | None], best: int) -> list[Comparison | None]:
    """Compare every sample with the one with the best mean, by Dunnett's T3.

    None for missing samples and for the best itself. The data choose the best, so its mean is too good on average, and
    a test that takes it for a fixed reference calls equal methods different too often. T3 holds for all pairs at once,
    whichever are looked at, and for unequal spreads (`benchmarks/verdicts.py`).
    """
    top = samples[best]
    if top is None:
        return [None] * len(samples)
    tested = sum(sample is not None and sample.spread_known for sample in samples)
    compared: list[Comparison | None] = []
    for index, sample in enumerate(samples):
        comparison = None if sample is None or index == best else compare(sample, top)
        if comparison is not None and sample is not None and comparison.welch is not None:
            t, freedom = welch_t(sample, top)
            comparison = replace(comparison, t3=t3_p(t, freedom, tested))
        compared.append(comparison)
    return compared


def welch_t(first: Sample, second: Sample) -> tuple[float, float]:
    """Return Welch's t and its degrees of freedom."""
    variances = first.std**2 / first.n, second.std**2 / second.n
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / (first.n - 1) + variances[1] ** 2 / (second.n - 1))
    return (first.mean - second.mean) / math.sqrt(sum(variances)), freedom


def t3_p(t: float, freedom: float, groups: int) -> float:
    """Return the two-sided p of Welch's t among all pairs of the groups (Dunnett 1980).

    This is the tail of the largest modulus of as many independent normals as there are pairs, studentized by one spread
    with these degrees of freedom. With two groups it is Welch's p. The integral over the logarithm of the spread
    converges fast on an even grid.
    """
    pairs = groups * (groups - 1) // 2
    wide = freedom < 231  # the left tail falls like e^(freedom * u) below this, like a normal one above
    low = -(39 / freedom + 0.5) if wide else -7.6 / math.sqrt(freedom)
    grid = np.linspace(low, min(2.4, 6.5 / math.sqrt(freedom)), 801)
    spread = np.exp(grid)
    half = freedom / 2
    density = np.exp(math.log(2) + half * math.log(half) - gammaln(half) + freedom * grid - half * spread**2)
    with np.errstate(divide="ignore"):  # t = 0: everything lies beyond
        beyond = -np.expm1(pairs * np.log1p(-2 * ndtr(-abs(t) * spread)))
    return float(min(1.0, (density * beyond).sum() * (grid[1] - grid[0])))


def paired_p(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Student's two-sided p of the differences by seed; None below two pairs or without variation."""
    away = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    if away.size < 2 or float(away.std(ddof=1)) < NO_SPREAD:
        return None
    t = float(away.mean() / (away.std(ddof=1) / math.sqrt(away.size)))
    return _p_value(t, away.size - 1, "two-sided")


def undecided_level(family: Iterable[Comparison | None]) -> float:
    """Return the level that Welch's p of an undecided comparison must fall below to become significant after Holm.

    All else stays unchanged: those already significant precede it in Holm's order, and it is the first of the rest.
    """
    rest = sum(comparison is not None and comparison.significant is False for comparison in family)
    return ALPHA / max(1, rest)


def mcnemar(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return McNemar's exact two-sided p for each row (a seed) over its columns (images).

    Only images that exactly one of the two models survives count. The p is twice the binomial tail; statsmodels gives
    the same number.
    """
    if first.shape != second.shape:
        raise ValueError(f"verdicts of shapes {first.shape} and {second.shape} cannot be paired")
    only_first, only_second = _count(first & ~second), _count(~first & second)
    return np.minimum(1.0, 2 * bdtr(np.minimum(only_first, only_second), only_first + only_second, 0.5))


def _count(verdicts: np.ndarray) -> np.ndarray:
    """Count the true values in each row. Counting bits is five times faster than a sum of booleans."""
    return np.bitwise_count(np.packbits(verdicts, axis=-1)).sum(axis=-1, dtype=np.int64)


def paired_bootstrap(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """Return the difference of accuracy with its 95 % percentile interval over redrawn test images.

    Each array is seeds x images. The interval shows what another test set of this size would give for these models; the
    t-tests show what other seeds would give on this test set. The quantiles are computed from the moments (Cornish and
    Fisher, with skewness) instead of drawn: with hundreds of images this is closer than ten thousand draws, and it is
    reproducible.
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
