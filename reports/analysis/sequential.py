"""A test of paired differences that stays valid at every look: e-values and confidence sequences for a mean.

The differences of two methods at the same seed are taken as normal with unknown mean and spread. The alternative to
"the mean is m" is a mixture: mean / spread is drawn from N(0, SCALE²), and the spread has the right Haar measure on
both sides. The ratio of the two marginal likelihoods then depends on the t-statistic alone. With r = 1 + n SCALE²,
mean d and centred sum of squares q of the n differences minus m, the integrals give

    E_n = r^(-1/2) · ((q + n d²) / (q + n d² / r))^(n/2)

(Lai 1976; Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance").
E_n is a martingale of expectation 1 with respect to everything that scaling the differences leaves unchanged. With
probability 1 - alpha it therefore never reaches 1 / alpha, whatever the rule for looking and stopping. The means m at
which it has not reached 1 / alpha form an interval that is valid at all times together. A wrong direction is decided
even more rarely: for every n the region that decides for it shrinks as the true mean moves away from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reports.analysis.statistics import NO_SPREAD
from sweep.store.records.decision import DecisionRecord

# Spread of the effect sizes in the mixture. At 2, three seeds never decide, four decide from an effect of about 4, and
# an effect of 0.5 needs about a tenth more seeds than at the best value for it (benchmarks/sequential.py).
SCALE = 2.0
Verdict = Literal["holds", "does not hold", "undecided"]


def log_e_value(n: np.ndarray | int, mean: np.ndarray | float, squares: np.ndarray | float) -> np.ndarray:
    """Return the log e-value against a mean of 0, element by element.

    squares: the centred sum of squares of the differences.
    """
    r = 1 + np.multiply(n, SCALE**2)
    shift = np.multiply(n, np.square(mean))
    total = np.maximum(squares + shift, np.finfo(float).tiny)
    # Differences that are all 0 agree with a mean of 0. They give the same e-value as at any other spread.
    least = np.where(shift > 0, total / r, total)
    return -np.log(r) / 2 + np.divide(n, 2) * (np.log(total) - np.log(np.maximum(squares + shift / r, least)))


def half_width(n: int, squares: float, alpha: float) -> float:
    """Return half the width of the interval of means whose e-value is below 1 / alpha.

    Infinite while no t-statistic could reach that.
    """
    r = 1 + n * SCALE**2
    bound = (math.sqrt(r) / alpha) ** (2 / n)
    return math.sqrt(squares / n * (bound - 1) / (1 - bound / r)) if bound < r else math.inf


@dataclass(frozen=True)
class SequentialResult:
    """The result of n pairs on a claim that first − second is above (direction 1) or below (-1) its margin."""

    n: int
    estimate: float
    spread: float
    low: float
    high: float
    e_value: float
    verdict: Verdict
    to_go: int | None  # seeds until decided if mean and spread stay; None if out of reach

    @property
    def decided(self) -> bool:
        return self.verdict != "undecided"


def look(
    differences: Sequence[float],
    *,
    direction: int = 1,
    margin: float = 0.0,
    alpha: float = 0.05,
    resolution: float = 0.0,
    most: int = 1000,
) -> SequentialResult | None:
    """Return the result at the first difference, in order, that decides the claim; else at all of them.

    The order makes a decision final: later seeds do not undo it. None below two differences.
    resolution: the smallest step in which the values can change, one test image. What two rounded values cannot show is
    added to the spread, because otherwise a few equal differences would pass for certainty. This only lowers the
    e-value, so the test stays valid. Differences without spread decide nothing if the resolution is unknown.
    most: the largest number of seeds to consider for `to_go`.
    """
    values = np.asarray(differences, dtype=float)
    for n in range(2, len(values) + 1):
        result = _at(values[:n], direction, margin, alpha, resolution, most)
        if result.decided or n == len(values):
            return result
    return None


def _at(
    values: np.ndarray, direction: int, margin: float, alpha: float, resolution: float, most: int
) -> SequentialResult:
    n, mean = len(values), float(values.mean())
    squares = float(((values - mean) ** 2).sum()) + n * resolution**2 / 6
    if math.sqrt(squares / n) < NO_SPREAD:
        return SequentialResult(n, mean, 0.0, -math.inf, math.inf, 1.0, "undecided", None)
    width = half_width(n, squares, alpha)
    log_e = float(log_e_value(n, mean - margin, squares))
    verdict: Verdict = "undecided"
    if log_e >= -math.log(alpha):
        verdict = "holds" if direction * (mean - margin) > 0 else "does not hold"
    to_go = 0 if verdict != "undecided" else seeds_to_go(n, mean - margin, squares, alpha, most)
    spread = math.sqrt(squares / (n - 1))
    return SequentialResult(n, mean, spread, mean - width, mean + width, math.exp(min(log_e, 700.0)), verdict, to_go)


def seeds_to_go(n: int, mean: float, squares: float, alpha: float, most: int) -> int | None:
    """Return how many more seeds bring the e-value to 1 / alpha if mean and spread stay; None beyond `most` in all."""
    later = np.arange(n + 1, most + 1)
    enough = np.flatnonzero(log_e_value(later, mean, squares / (n - 1) * (later - 1)) >= -math.log(alpha))
    return int(enough[0]) + 1 if len(enough) else None


def growth(result: SequentialResult | None, margin: float, seeds: int) -> float:
    """Return the gain of log e per seed over the next `seeds` if mean and spread stay; infinite without a result."""
    if result is None:
        return math.inf
    n = result.n + seeds
    later = log_e_value(n, result.estimate - margin, result.spread**2 * (n - 1))
    return (float(later) - math.log(result.e_value)) / seeds


def record_look(record: DecisionRecord) -> SequentialResult | None:
    """Return the result of a stored decision, computed again from its differences."""
    return look(
        record.differences,
        direction=record.direction,
        margin=record.margin,
        alpha=record.alpha,
        resolution=record.resolution,
    )


def outcome_words(result: SequentialResult, left_out: int = 0) -> str:
    """Return the outcome in words, such as `holds, decided after 4 seeds (sequential)`."""
    if left_out:
        return f"no decision: {left_out} of {result.n + left_out} seeds collapsed or failed in one of the two"
    if result.decided:
        return f"{result.verdict}, decided after {result.n} seeds (sequential)"
    return f"not decided after {result.n} seeds (sequential)"


def number_words(result: SequentialResult, alpha: float, points: str = " points") -> str:
    """Return estimate, always-valid interval and e-value in words."""
    level = f"{100 * (1 - alpha):g} %"
    if math.isinf(result.high):
        interval = f"always-valid {level} interval unbounded"
    else:
        interval = f"always-valid {level} interval {result.low:+.2f} to {result.high:+.2f}"
    return f"difference {result.estimate:+.2f}{points}, {interval}, e = {result.e_value:.3g}".replace("-", "−").replace(
        "always−valid", "always-valid"
    )
