"""ASHA's rungs and cut-offs, taken from completed candidates only, so that the moment of a result decides nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

REDUCTION = 3  # of the candidates at a rung, one in three goes on


def rungs(epochs: int) -> list[int]:
    """Numbers of trained epochs after which a candidate is judged: a ninth and a third of the whole training."""
    found = {max(1, math.ceil(epochs / REDUCTION**power)) for power in (2, 1)}
    return sorted(rung for rung in found if rung < epochs)


def best_so_far(curve: Sequence[float | None]) -> float | None:
    """The best value of a curve; an epoch without evaluation, or with NaN, has none."""
    values = [value for value in curve if value is not None and math.isfinite(value)]
    return max(values, default=None)


def cut_offs(completed: Sequence[Sequence[float | None]], epochs: int) -> dict[int, float]:
    """Per rung, what a candidate must have reached: the best third of the completed curves that came so far."""
    found = {}
    for rung in rungs(epochs):
        reached = [best_so_far(curve[:rung]) for curve in completed if len(curve) >= rung]
        values = sorted((value for value in reached if value is not None), reverse=True)
        if len(values) >= REDUCTION:
            found[rung] = values[math.ceil(len(values) / REDUCTION) - 1]
    return found


def judged(curve: Sequence[float | None], needed: Mapping[int, float]) -> tuple[int, bool]:
    """How many epochs of a curve count, and whether it was stopped at a rung for being below the cut-off."""
    for rung in sorted(needed):
        if len(curve) < rung:
            break
        best = best_so_far(curve[:rung])
        if best is not None and best < needed[rung]:
            return rung, True
    return len(curve), False
