"""The networks: one file each, named after the network. A file that is put here is found."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from trainers import registry
from trainers.network import Shape, Statistics

if TYPE_CHECKING:
    from torch import nn


def model_names() -> list[str]:
    return registry.NETWORKS.names()


def shape_fault(name: str, shape: Shape) -> str | None:
    """Why the network cannot take images of this shape (C, H, W), if it cannot."""
    fault = registry.NETWORKS.get(name).fault(shape)
    return fault and f"{name} {fault}"


def build(name: str, classes: int, *, shape: Shape, mean: Statistics = None, std: Statistics = None) -> nn.Module:
    """A freshly initialised network for images of this shape (C, H, W), standardised only with mean and std."""
    fault = shape_fault(name, shape)
    if fault is not None:
        raise ValueError(fault)
    return registry.NETWORKS.get(name).build(classes, shape, mean, std)


@cache
def numbers(name: str, classes: int, shape: Shape) -> int:
    """How many numbers its weights and buffers are; none of them is computed."""
    import torch

    with torch.device("meta"):
        return sum(tensor.numel() for tensor in build(name, classes, shape=shape).state_dict().values())
