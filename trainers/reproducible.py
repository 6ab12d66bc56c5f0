"""Torch's global settings for one training, whatever ran in this process before; all restored afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils import deterministic as determinism


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """float32 by default and, on the CPU, deterministic algorithms only. The number of threads is the caller's."""
    dtype = torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fills_memory = determinism.fill_uninitialized_memory  # type: ignore[attr-defined]
    benchmark = torch.backends.cudnn.benchmark
    torch.set_default_dtype(torch.float32)
    torch.backends.cudnn.benchmark = False
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        # No result depends on memory that nobody wrote; filling it would only cost time.
        determinism.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.backends.cudnn.benchmark = benchmark
        torch.use_deterministic_algorithms(deterministic, warn_only=warns_only)
        determinism.fill_uninitialized_memory = fills_memory  # type: ignore[attr-defined]
