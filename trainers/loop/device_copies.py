"""Copies of tensors to a device that do not make the host wait."""

from __future__ import annotations

import torch
from torch import Tensor


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on the device. From pinned memory the copy is queued among the device's kernels."""
    pinned = tensor.pin_memory() if device.type == "cuda" else tensor
    return pinned.to(device, non_blocking=True)
