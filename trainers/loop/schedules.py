"""Learning rate and momentum at every optimizer step (METHODS.md §2, §6, §7)."""

from __future__ import annotations

import math

from trainers.config import Schedule

# torch's OneCycleLR defaults, which the 1M-DDPM code leaves as they are.
_FIRST_DIVISOR = 25.0
_LAST_DIVISOR = 1e4
_MOMENTUM_LOW, _MOMENTUM_HIGH = 0.85, 0.95


def learning_rate(
    schedule: Schedule, initial: float, *, epoch: int, iteration: int, batches: int, step: int, epochs: int
) -> float:
    """Return the learning rate for one iteration.

    `epoch`, `iteration` and `step` count from 0; an epoch has `batches` iterations.
    """
    if schedule.kind == "constant":
        return initial
    if schedule.kind == "onecycle":
        low, last = initial / _FIRST_DIVISOR, initial / _FIRST_DIVISOR / _LAST_DIVISOR
        return _one_cycle(schedule.warmup_fraction, epoch, epochs, low, initial, last)
    if schedule.kind == "interpolate":
        return initial * _interpolated(schedule, epoch + 1)
    time = {
        # The end of the iteration: the last iteration before a drop already has the lower rate.
        "piecewise": epoch + (iteration + 1) / batches,
        "piecewise_epoch": epoch + 1,
        "steps": step,
    }[schedule.kind]
    factor = 1.0
    for point, value in zip(schedule.at, schedule.factors, strict=True):
        if time >= point:
            factor = value
    return initial * factor


def momentum(schedule: Schedule, initial: float, *, epoch: int, epochs: int) -> float:
    """Return the optimizer's momentum in this 0-based epoch. Only the one-cycle schedule changes it."""
    if schedule.kind != "onecycle":
        return initial
    return _one_cycle(schedule.warmup_fraction, epoch, epochs, _MOMENTUM_HIGH, _MOMENTUM_LOW, _MOMENTUM_HIGH)


def _interpolated(schedule: Schedule, time: float) -> float:
    points, factors = schedule.at, schedule.factors
    if time <= points[0]:
        return factors[0]
    for start, end, low, high in zip(points, points[1:], factors, factors[1:], strict=False):
        if time <= end:
            return low + (high - low) * (time - start) / (end - start)
    return factors[-1]


def _one_cycle(warmup_fraction: float, epoch: int, epochs: int, first: float, peak: float, last: float) -> float:
    turn = warmup_fraction * epochs - 1
    if epoch <= turn:
        return _cosine(first, peak, epoch / turn if turn else 1.0)
    return _cosine(peak, last, (epoch - turn) / (epochs - 1 - turn))


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * progress))
