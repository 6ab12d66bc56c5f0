"""The rule that tells a training that has learned next to nothing from one that has learned something."""

from __future__ import annotations


def near_chance(accuracy: float, classes: int) -> bool:
    """Return True if a clean accuracy, in [0, 1], is close to guessing.

    The limit is 23.5 % for 10 classes: above a constant answer if classes differ in size, far below anything worth a
    table. It is at most two and a half times chance, so that 15 % on 100 classes is not near chance.
    """
    chance = 1 / max(1, classes)
    return accuracy < chance + min(0.15 * (1 - chance), 1.5 * chance)
