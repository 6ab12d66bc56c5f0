"""CutMix (Yun et al. 2019), torchvision's: a box of each image is that of another, and its label is mixed likewise."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from trainers.data.torchvision_sets import torchvision_part


def cut_mixed(
    images: Tensor, labels: Tensor, classes: int, alpha: float, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Images and class probabilities (N, classes). One box for the whole batch, by one draw from Beta(alpha, alpha)."""
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torchvision draws from it, on the CPU for every device
        mixed: tuple[Tensor, Tensor] = torchvision_part("transforms.v2").CutMix(num_classes=classes, alpha=alpha)(
            images, labels
        )
    return mixed
