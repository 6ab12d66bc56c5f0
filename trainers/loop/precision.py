"""The numerics of a network: its memory format, float32, tf32 or bfloat16, compiled or not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from trainers.compat.torch_internals import raise_recompile_limit
from trainers.config import Recipe

TF32_CAPABILITY = 8  # Ampere and later
COMPILED_VARIANTS = 64  # of one network: modes, frozen weights, gradients, momenta, sizes; torch gives up after 8


def prepared(model: nn.Module, device: torch.device, recipe: Recipe) -> nn.Module:
    """Move the model to its device, set it up in place to compute as the recipe says, and return it.

    Its weights and their names do not change.
    """
    model.to(device)
    layout = torch.contiguous_format if recipe.channels_last is False else fastest_layout(model, device)
    model.to(memory_format=layout)  # type: ignore[call-overload]
    if recipe.precision == "bf16" or recipe.compile:
        # A bound method: a copy of the model gets its own, and hooks work as usual.
        model.forward = MethodType(_forward(type(model), recipe.precision == "bf16", bool(recipe.compile)), model)
    return model


def fastest_layout(model: nn.Module, device: torch.device) -> torch.memory_format:
    """Return the fastest memory format.

    On a CPU the network states which one that is; on a GPU convolutions are faster with channels last.
    """
    return getattr(model, "memory_format", torch.channels_last) if device.type == "cpu" else torch.channels_last


def _forward(network: type[nn.Module], in_bfloat16: bool, compiled: bool) -> Callable[[Any, Tensor], Tensor]:
    plain = _compiled(network) if compiled else network.forward  # type: ignore[arg-type]

    def forward(self: Any, images: Tensor) -> Tensor:
        if not in_bfloat16:
            return plain(self, images)
        # Only the network: losses, projections, signs of gradients and BatchNorm's buffers stay in float32.
        with torch.autocast(images.device.type, dtype=torch.bfloat16):
            logits: Tensor = plain(self, images)
        return logits.to(images.dtype)

    return forward


@cache
def _compiled(network: type[nn.Module]) -> Callable[[Any, Tensor], Tensor]:
    raise_recompile_limit(COMPILED_VARIANTS)
    return torch.compile(network.forward)


def laid_out(images: Tensor, model: nn.Module) -> Tensor:
    """Return the images, on a GPU in the memory format of the model's convolutions: mixed formats are slow.

    On a CPU images are unchanged, because there the format affects how sums are rounded.
    """
    if images.device.type == "cpu" or images.dim() != 4:
        return images
    weights = next((weight for weight in model.parameters() if weight.dim() == 4 and weight.shape[2] > 1), None)
    if weights is None or not weights.is_contiguous(memory_format=torch.channels_last):
        return images
    return images.contiguous(memory_format=torch.channels_last)


def used_precision(asked: str | None, device: str | torch.device) -> str:
    """Return the precision that a requested one gives on this device; None lets torch use tf32 in convolutions."""
    if asked == "bf16":
        return "bf16"
    kind = torch.device(device).type
    capable = kind == "cuda" and torch.cuda.get_device_capability(device)[0] >= TF32_CAPABILITY
    return "tf32" if capable and asked != "ieee" else "ieee"


def evaluation_precision(asked: str | None) -> str | None:
    """Return the precision for evaluating a network trained in this one.

    It is never below tf32, whose gradients an attack can follow.
    """
    return "tf32" if asked == "bf16" else asked
