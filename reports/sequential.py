"""A test of paired differences that stays valid whenever one looks: e-values and confidence sequences for a mean.

The differences of two methods at the same seed are taken as normal with unknown mean and spread. Against "the mean is
m" stands a mixture: mean / spread drawn from N(0, SCALE²), and the spread from the right Haar measure on both sides,
which makes the ratio of the two marginal likelihoods depend on nothing but the t-statistic. With r = 1 + n SCALE²,
mean d and centred sum of squares q of the n differences minus m, the integrals give

    E_n = r^(-1/2) · ((q + n d²) / (q + n d² / r))^(n/2)

(Lai 1976; Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance").
E_n is a martingale of expectation 1 among all that does not change when the differences are scaled, so that with
probability 1 - alpha it never reaches 1 / alpha, whoever looks and stops when. The means m at which it has not form an
interval that is valid at all times together. A wrong direction is decided even more rarely: for every n the region
that decides for it shrinks as the true mean moves away from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reports.statistics import NO_SPREAD
from sweep.store.records.decision import DecisionRecord

# Spread of the effect sizes in the mixture. At 2, no three seeds decide anything, four do from an effect of about 4 on,
# and an effect of 0.5 costs about a tenth more seeds than at the best value for it (benchmarks/sequential.py).
SCALE = 2.0
Verdict = Literal["holds", "does not hold", "undecided"]


def log_e_value(n: np.ndarray | int, mean: np.ndarray | float, squares: np.ndarray | float) -> np.ndarray:
    """Of the mean being 0; `squares` is the centred sum of squares. Arrays are taken element by element."""
    r = 1 + np.multiply(n, SCALE**2)
    shift = np.multiply(n, np.square(mean))
    total = np.maximum(squares + shift, np.finfo(float).tiny)
    # Differences that are all 0 are what a mean of 0 predicts: nothing speaks against it, as at any other spread.
    least = np.where(shift > 0, total / r, total)
    return -np.log(r) / 2 + np.divide(n, 2) * (np.log(total) - np.log(np.maximum(squares + shift / r, least)))


def half_width(n: int, squares: float, alpha: float) -> float:
    """Of the interval of means whose e-value is below 1 / alpha; infinite while no t-statistic could reach it."""
    r = 1 + n * SCALE**2
    bound = (math.sqrt(r) / alpha) ** (2 / n)
    return math.sqrt(squares / n * (bound - 1) / (1 - bound / r)) if bound < r else math.inf


@dataclass(frozen=True)
class Look:
    """What n pairs say of first − second, which a claim puts above (direction 1) or below (-1) its margin."""

    n: int
    estimate: float
    spread: float
    low: float
    high: float
    e_value: float
    verdict: Verdict
    to_go: int | None  # seeds until it is decided, if mean and spread stay as seen; None where that is out of reach

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
) -> Look | None:
    """At the first of the differences, taken in order, at which the claim is decided; else at all of them.

    That order is what makes a decision final: seeds that come later do not undo it. `resolution` is the step in which
    the values can change at all, one test image: what two rounded values cannot show is added to the spread, or a few
    equal differences would pass for certainty. The e-value only falls by it, so that nothing is lost in validity.
    Differences without spread decide nothing where no resolution is known.
    """
    values = np.asarray(differences, dtype=float)
    for n in range(2, len(values) + 1):
        found = _at(values[:n], direction, margin, alpha, resolution, most)
        if found.decided or n == len(values):
            return found
    return None


def _at(values: np.ndarray, direction: int, margin: float, alpha: float, resolution: float, most: int) -> Look:
    n, mean = len(values), float(values.mean())
    squares = float(((values - mean) ** 2).sum()) + n * resolution**2 / 6
    if math.sqrt(squares / n) < NO_SPREAD:
        return Look(n, mean, 0.0, -math.inf, math.inf, 1.0, "undecided", None)
    width = half_width(n, squares, alpha)
    log_e = float(log_e_value(n, mean - margin, squares))
    verdict: Verdict = "undecided"
    if log_e >= -math.log(alpha):
        verdict = "holds" if direction * (mean - margin) > 0 else "does not hold"
    to_go = 0 if verdict != "undecided" else seeds_to_go(n, mean - margin, squares, alpha, most)
    spread = math.sqrt(squares / (n - 1))
    return Look(n, mean, spread, mean - width, mean + width, math.exp(min(log_e, 700.0)), verdict, to_go)


def seeds_to_go(n: int, mean: float, squares: float, alpha: float, most: int) -> int | None:
    """More seeds until the e-value is 1 / alpha, if mean and spread stay as they are; None beyond `most` in all."""
    later = np.arange(n + 1, most + 1)
    enough = np.flatnonzero(log_e_value(later, mean, squares / (n - 1) * (later - 1)) >= -math.log(alpha))
    return int(enough[0]) + 1 if len(enough) else None


def growth(seen: Look | None, margin: float, seeds: int) -> float:
    """What log e would gain per seed over the next few, if mean and spread stay; infinite while nothing is known."""
    if seen is None:
        return math.inf
    n = seen.n + seeds
    later = log_e_value(n, seen.estimate - margin, seen.spread**2 * (n - 1))
    return (float(later) - math.log(seen.e_value)) / seeds


def record_look(record: DecisionRecord) -> Look | None:
    """A stored decision, computed again from its differences: what is shown is what they say."""
    return look(
        record.differences,
        direction=record.direction,
        margin=record.margin,
        alpha=record.alpha,
        resolution=record.resolution,
    )


def outcome_words(seen: Look, left_out: int = 0) -> str:
    """`holds, decided after 4 seeds (sequential)`."""
    if left_out:
        return f"no decision: {left_out} of {seen.n + left_out} seeds collapsed or failed in one of the two"
    if seen.decided:
        return f"{seen.verdict}, decided after {seen.n} seeds (sequential)"
    return f"not decided after {seen.n} seeds (sequential)"


def number_words(seen: Look, alpha: float, points: str = " points") -> str:
    """The estimate, its always-valid interval and the e-value."""
    level = f"{100 * (1 - alpha):g} %"
    if math.isinf(seen.high):
        interval = f"always-valid {level} interval unbounded"
    else:
        interval = f"always-valid {level} interval {seen.low:+.2f} to {seen.high:+.2f}"
    return f"difference {seen.estimate:+.2f}{points}, {interval}, e = {seen.e_value:.3g}".replace("-", "−").replace(
        "always−valid", "always-valid"
    )
