"""The networks: one file each, named after the network. New files in this folder are found automatically."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from trainers.network import Shape, Statistics
from trainers.plugins import declarations, registry

if TYPE_CHECKING:
    from torch import nn


def model_names() -> list[str]:
    """Return the names of all networks, plug-ins included."""
    return registry.NETWORKS.names()


def shape_fault(name: str, shape: Shape) -> str | None:
    """Return why the network cannot take images of this shape (C, H, W), or None if it can."""
    fault = declarations.network(name).fault(shape)
    return fault and f"{name} {fault}"


def misfit_of(name: str, classes: int, shape: Shape) -> str | None:
    """Return why a network does not fit images of this shape with so many classes, or None if it fits.

    A user's network is built and tried: it must return one logit for each class, with a gradient for the images.
    """
    fault = shape_fault(name, shape)
    if fault or name in registry.NETWORKS.shipped:
        return fault
    fault = _tried(name, classes, shape, registry.sha256_of(registry.NETWORKS, name))
    registry.record_build(name, classes, shape)  # in case an earlier try was cached
    return fault


@cache
def _tried(name: str, classes: int, shape: Shape, sha256: str | None) -> str | None:
    import torch

    images = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0), requires_grad=True)
    size = "x".join(map(str, shape))
    with torch.random.fork_rng(devices=[]):
        try:
            logits = build(name, classes, shape=shape).eval()(images)
        except ValueError as fault:  # its message names the network already
            return str(fault)
        except Exception as error:  # whatever the user's code raises
            return f"{name} cannot take images of {size}: {type(error).__name__}: {error}".splitlines()[0]
    if not isinstance(logits, torch.Tensor) or logits.shape != (2, classes):
        returned = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        return f"{name} returns {returned} for 2 images of {size}; it must return one logit per class, (2, {classes}),"
    if not logits.requires_grad or torch.autograd.grad(logits.sum(), images, allow_unused=True)[0] is None:
        return f"{name} cannot be attacked (is a tensor detached?): it passes no gradient to its images"
    return None


def build(name: str, classes: int, *, shape: Shape, mean: Statistics = None, std: Statistics = None) -> nn.Module:
    """Return a freshly initialised network for images of this shape (C, H, W).

    It standardises its input only if mean and std are given.
    """
    fault = shape_fault(name, shape)
    if fault is not None:
        raise ValueError(fault)
    return registry.NETWORKS.get(name).build(classes, shape, mean, std)


def numbers(name: str, classes: int, shape: Shape) -> int:
    """Return how many numbers its weights and buffers hold. Shipped networks are built without computing any."""
    return _numbers(name, classes, shape, registry.sha256_of(registry.NETWORKS, name))


@cache
def _numbers(name: str, classes: int, shape: Shape, sha256: str | None) -> int:
    import torch

    # A user's network may need real tensors while it is built.
    with torch.device("meta" if name in registry.NETWORKS.shipped else "cpu"), torch.random.fork_rng(devices=[]):
        return sum(tensor.numel() for tensor in build(name, classes, shape=shape).state_dict().values())
