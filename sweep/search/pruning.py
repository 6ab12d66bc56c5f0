"""ASHA's rungs and cut-offs, taken from completed candidates only, so that the moment of a result decides nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trainers import schedules
from trainers.config import Recipe

REDUCTION = 3  # of the candidates at a rung, one in three goes on


def first_drop(recipe: Recipe, batches: int) -> int | None:
    """Epochs trained before the learning rate has fallen to half of its peak; None if it never does.

    Until then accuracies under attack are mostly noise, and their order says nothing about the end.
    """
    rates = [
        schedules.learning_rate(
            recipe.schedule,
            recipe.learning_rate,
            epoch=epoch,
            iteration=0,
            batches=batches,
            step=epoch * batches,
            epochs=recipe.epochs,
        )
        for epoch in range(recipe.epochs)
    ]
    peak = 0.0
    for epoch, rate in enumerate(rates):
        peak = max(peak, rate)
        if 0 < peak and rate <= peak / 2:
            return epoch
    return None


def rungs(epochs: int, drop: int | None) -> list[int]:
    """Numbers of trained epochs after which a candidate is judged: soon after the first drop, and half way to the end.

    None of them lies before the drop of the learning rate; without a drop there are none.
    """
    if drop is None:
        return []
    found = {drop + max(1, math.ceil(epochs / 20)), math.ceil((drop + epochs) / 2)}
    return sorted(rung for rung in found if rung < epochs)


def best_so_far(curve: Sequence[float | None]) -> float | None:
    """The best value of a curve; an epoch without evaluation, or with NaN, has none."""
    values = [value for value in curve if value is not None and math.isfinite(value)]
    return max(values, default=None)


def cut_offs(completed: Sequence[Sequence[float | None]], rungs: Sequence[int]) -> dict[int, float]:
    """Per rung, what a candidate must have reached: the best third of the completed curves that came so far."""
    found = {}
    for rung in rungs:
        reached = [best_so_far(curve[:rung]) for curve in completed if len(curve) >= rung]
        values = sorted((value for value in reached if value is not None), reverse=True)
        if len(values) >= REDUCTION:
            found[rung] = third(values)
    return found


def third(falling: Sequence[float]) -> float:
    """The least value of the best third."""
    return falling[math.ceil(len(falling) / REDUCTION) - 1]


def judged(curve: Sequence[float | None], needed: Mapping[int, float]) -> tuple[int, bool]:
    """How many epochs of a curve count, and whether it was stopped at a rung for being below the cut-off."""
    for rung in sorted(needed):
        if len(curve) < rung:
            break
        best = best_so_far(curve[:rung])
        if best is not None and best < needed[rung]:
            return rung, True
    return len(curve), False
