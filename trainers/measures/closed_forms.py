"""The paper's toy problem (§4): logits that follow the gradient flow of a weighted OVR or cross-entropy loss.

Both flows have closed forms in Lambert's W. In the paper's notation, W(e^(wt+1)) overflows for wt > 709 and loses all
digits long before. Here W(e^a) is Wright's omega, and wt + 1 - W(e^(wt+1)) is its logarithm, which is exact for every
t. The paper's lemma on OVR has -wt-1-W(...) for k != y, which gives -2 at t = 0; we use the sign of its proof,
-wt-1+W(...).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax, wrightomega

Array = NDArray[np.float64]


def ovr_logits(weight: float, time: ArrayLike) -> tuple[Array, Array]:
    """Return (z_y, z_k) at each time under the weighted one-vs-the-rest loss, for any number of classes."""
    true = np.log(wrightomega(weight * np.asarray(time, dtype=float) + 1.0))
    return true, -true


def ce_logits(classes: int, weight: float, time: ArrayLike) -> tuple[Array, Array]:
    """Return (z_y, z_k) at each time under weighted cross-entropy."""
    margin = -ce_margin_loss(classes, weight, time)
    return (classes - 1) / classes * margin, -margin / classes


def ovr_margin_loss(weight: float, time: ArrayLike) -> Array:
    """Return the logit margin loss z_k - z_y under OVR: -2wt - 2 + 2W(e^(wt+1))."""
    true, other = ovr_logits(weight, time)
    return other - true


def ce_margin_loss(classes: int, weight: float, time: ArrayLike) -> Array:
    """Return the logit margin loss under cross-entropy: -(Kwt+1)/(K-1) + W(e^((Kwt+1)/(K-1)) / (K-1))."""
    wrong_classes = classes - 1.0
    exponent = (classes * weight * np.asarray(time, dtype=float) + 1.0) / wrong_classes
    return -(np.log(wrong_classes) + np.log(wrightomega(exponent - np.log(wrong_classes))))


def ovr_margin_loss_approximation(weight: float, time: ArrayLike) -> Array:
    """Return the approximation of the OVR margin loss for large t: -2 log(wt + 1)."""
    return -2.0 * np.log1p(weight * np.asarray(time, dtype=float))


def ce_margin_loss_approximation(classes: int, weight: float, time: ArrayLike) -> Array:
    """Return the approximation of the cross-entropy margin loss for large t: -log(Kwt + 1 - (K-1) log(K-1)).

    The result is NaN where the outer logarithm is undefined.
    """
    argument = classes * weight * np.asarray(time, dtype=float) + 1.0 - (classes - 1) * np.log(classes - 1.0)
    defined = argument > 0
    return np.where(defined, -np.log(np.where(defined, argument, 1.0)), np.nan)


def _ovr_slope(logits: Array) -> Array:
    slope = -expit(logits)
    slope[..., 0] += 1.0
    return slope


def _ce_slope(logits: Array) -> Array:
    slope = -softmax(logits, axis=-1)
    slope[..., 0] += 1.0
    return slope


SLOPES: dict[str, Callable[[Array], Array]] = {"ovr": _ovr_slope, "ce": _ce_slope}


def integrate(loss: str, classes: int, weights: ArrayLike, *, until: float, step: float = 0.1) -> tuple[Array, Array]:
    """Integrate the same flow by the classical Runge-Kutta method, without using the closed forms.

    Return the times and the logits, of shape (times, weights, classes). Class 0 is the true one.
    """
    scale = np.asarray(weights, dtype=float).reshape(-1, 1) * step
    slope = SLOPES[loss]
    steps = round(until / step)
    path = np.zeros((steps + 1, scale.shape[0], classes))
    for index in range(steps):
        logits = path[index]
        first = scale * slope(logits)
        second = scale * slope(logits + first / 2)
        third = scale * slope(logits + second / 2)
        fourth = scale * slope(logits + third)
        path[index + 1] = logits + (first + 2 * second + 2 * third + fourth) / 6
    return np.linspace(0.0, steps * step, steps + 1), path


def trajectory_row(classes: int, weight: float, time: float) -> dict[str, float | int | None]:
    """Return all quantities at one time, under the names of the reference table `lambert_trajectories`."""
    ovr_true, ovr_other = ovr_logits(weight, time)
    ce_true, ce_other = ce_logits(classes, weight, time)
    approximation = float(ce_margin_loss_approximation(classes, weight, time))
    return {
        "K": classes,
        "w": weight,
        "t": time,
        "ovr_zy": float(ovr_true),
        "ovr_zk": float(ovr_other),
        "ce_zy": float(ce_true),
        "ce_zk": float(ce_other),
        "lm_ovr": float(ovr_margin_loss(weight, time)),
        "lm_ce": float(ce_margin_loss(classes, weight, time)),
        "lm_ovr_approx": float(ovr_margin_loss_approximation(weight, time)),
        "lm_ce_approx": None if np.isnan(approximation) else approximation,
    }
