"""Claims that need no training: they are calculated. A claim names its calculation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import logsumexp

from trainers.closed_forms import ce_margin_loss, ovr_margin_loss


@cache
def ovr_above_ce() -> tuple[bool, str]:
    """OVR against cross-entropy on 100,000 random logit vectors."""
    draws = np.random.default_rng(0)
    logits = draws.standard_normal((100_000, 10))
    true = logits[:, 0]
    cross_entropy = logsumexp(logits, axis=1) - true
    ovr = np.logaddexp(0, logits).sum(axis=1) - true
    of_means = float(ovr.mean() / cross_entropy.mean())
    of_ratios = float((ovr / cross_entropy).mean())
    never_below = bool((ovr >= cross_entropy).all())
    below = "never below" if never_below else "sometimes below"
    evidence = (
        f"{below} in 100,000 draws from N(0, I), K = 10, but about three times as large: the ratio of the means is "
        f"{of_means:.2f}, the mean of the ratios {of_ratios:.2f}"
    )
    return never_below and 3.5 <= max(of_means, of_ratios) <= 4.5, evidence


def toy_ratio() -> tuple[bool, str]:
    times = (1e2, 1e6, 1e12, 1e100)
    ratios = [float(ovr_margin_loss(1.0, time) / ce_margin_loss(10, 1.0, time)) for time in times]
    shown = ", ".join(f"{ratio:.2f} at t = {time:.0e}" for ratio, time in zip(ratios, times, strict=True))
    rises = all(before < after < 2 for before, after in zip(ratios, ratios[1:], strict=False))
    return rises and ratios[-1] > 1.95, f"ratio for K = 10, w = 1: {shown}; it tends to 2, slowly"


def toy_always_larger() -> tuple[bool, str]:
    ovr, cross_entropy = float(ovr_margin_loss(1.0, 0.5)), float(ce_margin_loss(10, 1.0, 0.5))
    holds = ovr < cross_entropy
    evidence = f"at w = 1, K = 10, t = 0.5 the margin loss is {ovr:.3f} for OVR and {cross_entropy:.3f} for CE"
    return holds, evidence + ("" if holds else "; true for large t only")


CALCULATIONS: dict[str, Callable[[], tuple[bool, str]]] = {
    calculation.__name__: calculation for calculation in (ovr_above_ce, toy_ratio, toy_always_larger)
}
