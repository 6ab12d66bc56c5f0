"""What a network is: how it is built, shown, and which images it takes. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import nn

Shape: TypeAlias = tuple[int, int, int]
Statistics: TypeAlias = "Sequence[float] | None"


@dataclass(frozen=True)
class Architecture:
    """`build(classes, shape, mean, std)`: pixels in [0, 1] in, logits out, standardised if mean and std are given."""

    build: Callable[[int, Shape, Any, Any], nn.Module]
    display: str
    least: int = 1  # pixels that the sides of its images have
    most: int | None = None
    multiple: int = 1  # of which they have a multiple

    def fault(self, shape: Shape) -> str | None:
        """Why the network cannot take images of this shape, if it cannot."""
        if min(shape[1:]) < self.least:
            return f"takes images of at least {self.least}x{self.least}, not {shape[1]}x{shape[2]}; use small_cnn"
        if self.most is not None and max(shape[1:]) > self.most:
            return f"takes images of at most {self.most}x{self.most}, not {shape[1]}x{shape[2]}; use small_cnn"
        if any(side % self.multiple for side in shape[1:]):
            return f"takes images with sides that {self.multiple} divides, not {shape[1]}x{shape[2]}"
        return None
