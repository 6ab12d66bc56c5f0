"""When a training has learned next to nothing: accuracy on clean images not far above guessing."""

from __future__ import annotations


def near_chance(accuracy: float, classes: int) -> bool:
    """Of `accuracy` from 0 to 1.

    Of 10 classes 23.5 % is the limit: above a constant answer where classes differ in size, far below anything worth a
    table. It grows with chance, so that 15 % of 100 classes is no guessing.
    """
    chance = 1 / max(1, classes)
    return accuracy < chance + min(0.15 * (1 - chance), 1.5 * chance)
