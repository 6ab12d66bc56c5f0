"""Random numbers keyed by image: a hash of (seed, image, element), independent of batch, shard and device."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
Bits = TypeVar("Bits", int, Tensor)


def _mix(bits: Bits) -> Bits:
    """Apply a well-tested 32-bit finaliser, two xor-shift-multiply rounds, on int64 for lack of unsigned types."""
    bits = bits ^ (bits >> 16)  # a new tensor, changed in place from here on
    bits *= 0x7FEB352D
    bits &= _MASK
    bits ^= bits >> 15
    bits *= 0x846CA68B
    bits &= _MASK
    bits ^= bits >> 16
    return bits


def keyed_bits(seed: int, keys: Tensor, elements: int) -> Tensor:
    """Return 32 random bits for each (key, element), as int64 of shape (len(keys), elements)."""
    keys = keys.to(torch.int64)
    stream = _mix((seed * 0x9E3779B9 + 0x85EBCA6B) & _MASK)
    low, high = keys & _MASK, (keys >> 32) & _MASK
    key = _mix(_mix(low ^ stream) ^ high ^ 0x2545F491)
    element = _mix(torch.arange(elements, device=keys.device) ^ stream)
    return _mix(key[:, None] ^ element[None, :])


def keyed_uniform(seed: int, keys: Tensor, like: Tensor) -> Tensor:
    """Return U(-1, 1) shaped like the images `like`, one row per key; 24 bits, exact in float32 and float64."""
    bits = keyed_bits(seed, keys.to(like.device), like[0].numel())
    return ((bits >> 8).to(like.dtype) * 2.0**-23 - 1.0).view(like.shape)


def keyed_normal(seed: int, keys: Tensor, like: Tensor) -> Tensor:
    """Return N(0, 1) as the quantiles of uniform numbers: the same on every device, up to rounding."""
    # Shifted by half a step, because -1 has no quantile; the sum is exact in float32.
    return torch.erfinv(keyed_uniform(seed, keys, like) + 2.0**-24) * math.sqrt(2)


class TrainingNoise:
    """Unit noise for the starts of one epoch's attacks; each start takes the next rows of the epoch's stream.

    A method may attack part of its batch, or attack twice, so rows are counted rather than keyed by image. The noise
    does not depend on the device: an epoch starts its attacks from the same noise on a CPU and on any GPU.
    """

    def __init__(self, seed: int, start: str) -> None:
        self.seed = seed
        self.draw = keyed_normal if start == "gauss" else keyed_uniform
        self.rows = 0

    def __call__(self, images: Tensor) -> Tensor:
        first, self.rows = self.rows, self.rows + len(images)
        return self.draw(self.seed, torch.arange(first, self.rows, device=images.device), images)


def keyed_signs(seed: int, keys: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return ±1 with equal probability, of shape (len(keys), *shape)."""
    elements = int(torch.Size(shape).numel())
    bits = keyed_bits(seed, keys, elements)
    return ((bits >> 31) * 2 - 1).to(dtype).view(len(keys), *shape)
