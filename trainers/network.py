"""The description of a network: how to build and display it, and which images it takes. Loads no torch."""

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
    """A network that can be built by name.

    `build(classes, shape, mean, std)` returns a module from pixels in [0, 1] to logits. It standardises its input if
    mean and std are given.
    """

    build: Callable[[int, Shape, Any, Any], nn.Module]
    display: str
    least: int = 1  # smallest side of an image, in pixels
    most: int | None = None  # largest side of an image, in pixels
    multiple: int = 1  # both sides must be multiples of this

    def fault(self, shape: Shape) -> str | None:
        """Return why the network cannot take images of this shape (C, H, W), or None if it can."""
        if min(shape[1:]) < self.least:
            return f"takes images of at least {self.least}x{self.least}, not {shape[1]}x{shape[2]}; use small_cnn"
        if self.most is not None and max(shape[1:]) > self.most:
            return f"takes images of at most {self.most}x{self.most}, not {shape[1]}x{shape[2]}; use small_cnn"
        if any(side % self.multiple for side in shape[1:]):
            return f"takes images with sides divisible by {self.multiple}, not {shape[1]}x{shape[2]}"
        return None
