"""What a network is: how it is built, shown, and which images it takes. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import nn

Shape: TypeAlias = tuple[int, int, int]
Statistics: TypeAlias = "Sequence[float] | None"


def takes_any(shape: Shape) -> str | None:
    return None


def takes_sides(least: int, multiple: int = 1) -> Callable[[Shape], str | None]:
    """Of images with sides of at least so many pixels, multiples of so many."""

    def fault(shape: Shape) -> str | None:
        if min(shape[1:]) < least:
            return f"takes images of at least {least}x{least}, not {shape[1]}x{shape[2]}; use small_cnn"
        if any(side % multiple for side in shape[1:]):
            return f"takes images with sides that {multiple} divides, not {shape[1]}x{shape[2]}"
        return None

    return fault


@dataclass(frozen=True)
class Architecture:
    """`build(classes, shape, mean, std)`: pixels in [0, 1] in, logits out, standardised if mean and std are given."""

    build: Callable[[int, Shape, Any, Any], nn.Module]
    display: str
    fault: Callable[[Shape], str | None] = takes_any  # why the network cannot take images of this shape, if it cannot
