"""Tensors on their way to a device, without making the host wait."""

from __future__ import annotations

import torch
from torch import Tensor


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device, while the host goes on: from pinned memory a copy takes its turn among the device's kernels."""
    pinned = tensor.pin_memory() if device.type == "cuda" else tensor
    return pinned.to(device, non_blocking=True)
