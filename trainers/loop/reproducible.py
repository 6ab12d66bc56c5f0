"""Torch's global settings for one training or evaluation, independent of what ran before; all are restored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils import deterministic as determinism

from trainers.config import Recipe

FLOAT32 = Recipe()


@contextmanager
def reproducible(device: torch.device, recipe: Recipe = FLOAT32, *, fixed_shapes: bool = True) -> Iterator[None]:
    """Compute in float32 by default and, on the CPU or if the recipe says so, with deterministic algorithms only.

    `fixed_shapes` is True if the network sees only a few batch sizes. The number of threads is left to the caller.
    """
    dtype = torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fills_memory = determinism.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.set_default_dtype(torch.float32)
    if device.type == "cpu" or recipe.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS repeats its sums only with this
        torch.use_deterministic_algorithms(True)
        # No result depends on uninitialised memory; filling it would only cost time.
        determinism.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        with kernels(recipe.precision, searched=fixed_shapes and not recipe.deterministic):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic, warn_only=warns_only)
        determinism.fill_uninitialized_memory = fills_memory  # type: ignore[attr-defined]


@contextmanager
def kernels(precision: str | None, *, searched: bool) -> Iterator[None]:
    """Set the kernels that a GPU may use.

    With `searched`, cuDNN tries all of them once for each shape, which pays if shapes recur. Without a precision
    torch's own rule holds: tf32 in convolutions, float32 in matrix products.
    """
    convolutions, products = torch.backends.cudnn.conv, torch.backends.cuda.matmul  # type: ignore[attr-defined]
    before = convolutions.fp32_precision, products.fp32_precision, torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = searched
    if precision is not None:
        convolutions.fp32_precision = products.fp32_precision = "ieee" if precision == "ieee" else "tf32"
    try:
        yield
    finally:
        convolutions.fp32_precision, products.fp32_precision, torch.backends.cudnn.benchmark = before
