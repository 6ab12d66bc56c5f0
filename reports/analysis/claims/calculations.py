"""Claims that need no training, because they can be calculated. A claim names its calculation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from scipy.special import logsumexp

from trainers.measures.closed_forms import SLOPES, ce_logits, ce_margin_loss, ovr_logits, ovr_margin_loss

Result = tuple[bool, str]  # whether the claim holds, and the evidence
DRAWS = 100_000
CLASSES = (2, 10, 100, 1000)
WEIGHTS = (0.1, 0.5, 1.0, 5.0)
ROUNDING = 1e-9  # of sums of up to a hundred terms


def _losses(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return SLM, cross-entropy and OVR of each row. The first class is the label."""
    true = logits[:, 0]
    soft_margin = logsumexp(logits[:, 1:], axis=1) - true
    return soft_margin, logsumexp(logits, axis=1) - true, np.logaddexp(0, logits).sum(axis=1) - true


def _many_logits() -> Iterator[np.ndarray]:
    """Yield about DRAWS random logit vectors in all, of few and many classes, from nearly equal to far apart."""
    draws = np.random.default_rng(0)
    kinds = [(classes, scale) for classes in (2, 3, 10, 30) for scale in (0.1, 1.0, 3.0, 10.0, 30.0)]
    for classes, scale in kinds:
        yield scale * draws.standard_normal((DRAWS // len(kinds), classes))


@cache
def _ordered() -> tuple[bool, bool]:
    """Return whether SLM was never above cross-entropy, and whether cross-entropy was always between 0 and OVR."""
    below = above = True
    for logits in _many_logits():
        soft_margin, cross_entropy, ovr = _losses(logits)
        below &= bool((soft_margin <= cross_entropy + ROUNDING).all())
        above &= bool((cross_entropy <= ovr + ROUNDING).all() and (cross_entropy >= -ROUNDING).all())
    return below, above


def ovr_above_ce() -> Result:
    """Check that OVR is never below cross-entropy."""
    holds = _ordered()[1]
    return holds, f"{'never' if holds else 'sometimes'} violated in {DRAWS:,} random logit vectors, K = 2 to 30"


def slm_below_ce_below_ovr() -> Result:
    """Check that SLM, cross-entropy and OVR are always in this order."""
    holds = all(_ordered())
    return holds, f"{'never' if holds else 'sometimes'} violated in {DRAWS:,} random logit vectors, K = 2 to 30"


@cache
def ovr_four_times() -> Result:
    """Check that OVR is about four times cross-entropy: either way to take the ratio may round to four."""
    _, cross_entropy, ovr = _losses(np.random.default_rng(0).standard_normal((DRAWS, 10)))
    of_means, of_ratios = float(ovr.mean() / cross_entropy.mean()), float((ovr / cross_entropy).mean())
    evidence = (
        f"in {DRAWS:,} draws from N(0, I), K = 10, the ratio of the means is {of_means:.2f}, the mean of the ratios "
        f"{of_ratios:.2f}"
    )
    return any(round(ratio) == 4 for ratio in (of_means, of_ratios)), evidence


@cache
def closed_forms() -> Result:
    """Check the lemmas' logits (with the proof's sign) against scipy's adaptive Runge-Kutta method of order 8."""
    from scipy.integrate import solve_ivp

    times = np.linspace(0.0, 100.0, 51)
    largest = 0.0
    for classes in (2, 10, 100):
        for weight in (0.5, 5.0):
            for loss, closed in (("ovr", ovr_logits(weight, times)), ("ce", ce_logits(classes, weight, times))):
                flow = solve_ivp(
                    lambda _, logits, loss=loss, weight=weight: weight * SLOPES[loss](logits),
                    *((0.0, times[-1]), np.zeros(classes)),
                    method="DOP853",
                    t_eval=times,
                    rtol=1e-10,
                    atol=1e-12,
                )
                numeric = flow.y[0], flow.y[1]
                errors = (float(np.abs(exact - logit).max()) for exact, logit in zip(closed, numeric, strict=True))
                largest = max(largest, *errors)
    return largest < 1e-6, (
        f"largest difference of a logit from scipy's DOP853 {largest:.0e}, K = 2, 10, 100, w = 0.5 and 5, t up to 100"
    )


@cache
def toy_ratio() -> Result:
    """Check that the ratio tends to 2: its largest distance from 2 over all settings shrinks and falls below 0.05."""
    times = (1e20, 1e50, 1e100, 1e200, 1e300)
    settings = [(classes, ovr, ce) for classes in CLASSES for ovr in WEIGHTS for ce in WEIGHTS]
    ratios = np.array(
        [
            [float(ovr_margin_loss(ovr, t) / ce_margin_loss(classes, ce, t)) for t in times]
            for classes, ovr, ce in settings
        ]
    )
    away = np.abs(ratios - 2).max(axis=0)
    usual = ", ".join(
        f"{float(ovr_margin_loss(1, t) / ce_margin_loss(10, 1, t)):.2f} at t = {t:.0e}" for t in (1e2, 1e6)
    )
    evidence = (
        f"{ratios[:, -1].min():.3f} to {ratios[:, -1].max():.3f} at t = {times[-1]:.0e} over K = 2 to 1000 and weights "
        f"0.1 to 5 of either loss; slowly: for K = 10, w = 1 it is {usual}"
    )
    return bool((np.diff(away) < 0).all()) and float(away[-1]) < 0.05, evidence


@cache
def toy_always_larger() -> Result:
    """Check that OVR's margin loss is always below that of cross-entropy, and find from when on it is."""
    from scipy.optimize import brentq

    def lead(log_time: float, classes: int) -> float:
        time = math.exp(log_time)
        return float(ce_margin_loss(classes, 1.0, time) - ovr_margin_loss(1.0, time))

    passes = {}
    for classes in (2, 10, 100):
        grid = np.linspace(math.log(1e-3), math.log(1e6), 200)
        leads = [lead(point, classes) for point in grid]
        behind = [index for index, ahead in enumerate(leads) if ahead < 0]
        if behind:
            end = behind[-1]
            passes[classes] = math.exp(brentq(lead, grid[end], grid[end + 1], args=(classes,)))
    ovr, cross_entropy = float(ovr_margin_loss(1.0, 0.5)), float(ce_margin_loss(10, 1.0, 0.5))
    evidence = f"at w = 1, K = 10, t = 0.5 the margin loss is {ovr:.3f} for OVR and {cross_entropy:.3f} for CE"
    if passes:
        starts = " and ".join(f"t = {time:.1f} (K = {classes})" for classes, time in passes.items())
        evidence += f"; OVR's margin is the larger one only from {starts} on"
    return not passes, evidence


CALCULATIONS: dict[str, Callable[[], Result]] = {
    calculation.__name__: calculation
    for calculation in (
        *(ovr_above_ce, ovr_four_times, slm_below_ce_below_ovr),
        *(closed_forms, toy_ratio, toy_always_larger),
    )
}
