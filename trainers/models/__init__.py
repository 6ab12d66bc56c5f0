"""The networks: one file each, named after the network. A file that is put here is found."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from trainers import declared, registry
from trainers.network import Shape, Statistics

if TYPE_CHECKING:
    from torch import nn


def model_names() -> list[str]:
    return registry.NETWORKS.names()


def shape_fault(name: str, shape: Shape) -> str | None:
    """Why the network cannot take images of this shape (C, H, W), if it cannot."""
    fault = declared.network(name).fault(shape)
    return fault and f"{name} {fault}"


def misfit_of(name: str, classes: int, shape: Shape) -> str | None:
    """The same, and for a network that is not ours whether it gives such images logits that an attack can climb."""
    fault = shape_fault(name, shape)
    if fault or name in registry.NETWORKS.shipped:
        return fault
    fault = _tried(name, classes, shape, registry.sha256_of(registry.NETWORKS, name))
    registry.record_build(name, classes, shape)  # where an earlier try was remembered
    return fault


@cache
def _tried(name: str, classes: int, shape: Shape, sha256: str | None) -> str | None:
    import torch

    images = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0), requires_grad=True)
    size = "x".join(map(str, shape))
    with torch.random.fork_rng(devices=[]):
        try:
            logits = build(name, classes, shape=shape).eval()(images)
        except ValueError as fault:  # says itself what it is about
            return str(fault)
        except Exception as error:  # whatever the user's code raises
            return f"{name} cannot take images of {size}: {type(error).__name__}: {error}".splitlines()[0]
    if not isinstance(logits, torch.Tensor) or logits.shape != (2, classes):
        found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        return f"{name} gives {found} for 2 images of {size}, but must give (2, {classes}): a logit for each class"
    if not logits.requires_grad or torch.autograd.grad(logits.sum(), images, allow_unused=True)[0] is None:
        return f"{name} passes no gradient to its images, so that they cannot be attacked; is something detached?"
    return None


def build(name: str, classes: int, *, shape: Shape, mean: Statistics = None, std: Statistics = None) -> nn.Module:
    """A freshly initialised network for images of this shape (C, H, W), standardised only with mean and std."""
    fault = shape_fault(name, shape)
    if fault is not None:
        raise ValueError(fault)
    return registry.NETWORKS.get(name).build(classes, shape, mean, std)


def numbers(name: str, classes: int, shape: Shape) -> int:
    """How many numbers its weights and buffers are; none of ours is computed."""
    return _numbers(name, classes, shape, registry.sha256_of(registry.NETWORKS, name))


@cache
def _numbers(name: str, classes: int, shape: Shape, sha256: str | None) -> int:
    import torch

    # What a user writes may need numbers to build with.
    with torch.device("meta" if name in registry.NETWORKS.shipped else "cpu"), torch.random.fork_rng(devices=[]):
        return sum(tensor.numel() for tensor in build(name, classes, shape=shape).state_dict().values())
