"""Networks by name: pixels in [0, 1] in, logits out, standardisation inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

_NAMES = ("preact_resnet18", "wrn_34_10", "wrn_28_10_silu", "small_cnn")


def model_names() -> tuple[str, ...]:
    return _NAMES


def shape_fault(name: str, shape: tuple[int, int, int]) -> str | None:
    """Why the network cannot take images of this shape (C, H, W), if it cannot."""
    sides = f"{shape[1]}x{shape[2]}"
    if name == "small_cnn":
        return f"small_cnn takes images with even sides, not {sides}" if shape[1] % 2 or shape[2] % 2 else None
    return None if shape[1:] == (32, 32) else f"{name} takes 32x32 images, not {sides}; use small_cnn"


def build(
    name: str,
    classes: int,
    *,
    shape: tuple[int, int, int],
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """A freshly initialised network for images of this shape (C, H, W), standardised only with mean and std."""
    from trainers.models.preact_resnet import PreActResNet18
    from trainers.models.small_cnn import SmallCNN
    from trainers.models.wide_resnet import WideResNet34x10
    from trainers.models.wide_resnet_silu import WideResNet28x10Silu

    if name not in _NAMES:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(_NAMES)}")
    fault = shape_fault(name, shape)
    if fault is not None:
        raise ValueError(fault)
    if name == "small_cnn":
        return SmallCNN(classes, shape, mean, std)
    network = {
        "preact_resnet18": PreActResNet18,
        "wrn_34_10": WideResNet34x10,
        "wrn_28_10_silu": WideResNet28x10Silu,
    }[name]
    return network(classes, shape[0], mean, std)
