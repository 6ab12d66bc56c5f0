"""ASHA's rungs and cut-offs. They use completed candidates only, so that timing has no influence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trainers.config import Recipe
from trainers.loop import schedules

REDUCTION = 3  # one in three candidates continues after a rung


def first_drop(recipe: Recipe, batches: int) -> int | None:
    """Return the number of epochs before the learning rate falls to half of its peak; None if it never does.

    Before that, accuracies under attack are mostly noise, and their order does not predict the final one.
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
    """Return the rungs, in epochs: soon after the first drop of the learning rate, and halfway from it to the end.

    No rung is before the drop. There are no rungs if the learning rate never drops.
    """
    if drop is None:
        return []
    found = {drop + max(1, math.ceil(epochs / 20)), math.ceil((drop + epochs) / 2)}
    return sorted(rung for rung in found if rung < epochs)


def best_so_far(curve: Sequence[float | None]) -> float | None:
    """Return the highest value of a curve, ignoring None and NaN; None if no value remains."""
    values = [value for value in curve if value is not None and math.isfinite(value)]
    return max(values, default=None)


def cut_offs(completed: Sequence[Sequence[float | None]], rungs: Sequence[int]) -> dict[int, float]:
    """Return the cut-off at each rung: the best third of the completed curves that reached it."""
    found = {}
    for rung in rungs:
        reached = [best_so_far(curve[:rung]) for curve in completed if len(curve) >= rung]
        values = sorted((value for value in reached if value is not None), reverse=True)
        if len(values) >= REDUCTION:
            found[rung] = third(values)
    return found


def third(falling: Sequence[float]) -> float:
    """Return the lowest value in the best third of `falling`, which is in descending order."""
    return falling[math.ceil(len(falling) / REDUCTION) - 1]


def judged(curve: Sequence[float | None], needed: Mapping[int, float]) -> tuple[int, bool]:
    """Return the number of epochs of a curve that count, and whether it was pruned for being below a cut-off."""
    for rung in sorted(needed):
        if len(curve) < rung:
            break
        best = best_so_far(curve[:rung])
        if best is not None and best < needed[rung]:
            return rung, True
    return len(curve), False
