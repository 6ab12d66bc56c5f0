"""Random numbers keyed by image: a hash of (seed, image, element), so no batch, shard or device can move them."""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


def _mix(bits: Tensor) -> Tensor:
    """A well tested 32-bit finaliser: two xor-shift-multiply rounds, on int64 for want of unsigned types."""
    bits = bits ^ (bits >> 16)
    bits = (bits * 0x7FEB352D) & _MASK
    bits = bits ^ (bits >> 15)
    bits = (bits * 0x846CA68B) & _MASK
    return bits ^ (bits >> 16)


def keyed_bits(seed: int, keys: Tensor, elements: int) -> Tensor:
    """32 random bits for each (key, element), as int64 of shape (len(keys), elements)."""
    keys = keys.to(torch.int64)
    stream = _mix(torch.tensor((seed * 0x9E3779B9 + 0x85EBCA6B) & _MASK, device=keys.device))
    low, high = keys & _MASK, (keys >> 32) & _MASK
    key = _mix(_mix(low ^ stream) ^ high ^ 0x2545F491)
    element = _mix(torch.arange(elements, device=keys.device) ^ stream)
    return _mix(key[:, None] ^ element[None, :])


def keyed_uniform(seed: int, keys: Tensor, like: Tensor) -> Tensor:
    """U(-1, 1) shaped like the images `like`, one row per key; 24 bits, exact in float32 and float64 alike."""
    bits = keyed_bits(seed, keys.to(like.device), like[0].numel())
    return ((bits >> 8).to(like.dtype) * 2.0**-23 - 1.0).view(like.shape)


def keyed_signs(seed: int, keys: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """±1 with equal chance, of shape (len(keys), *shape)."""
    elements = int(torch.Size(shape).numel())
    bits = keyed_bits(seed, keys, elements)
    return ((bits >> 31) * 2 - 1).to(dtype).view(len(keys), *shape)
