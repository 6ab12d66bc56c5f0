"""CutMix (Yun et al. 2019) by torchvision: each image gets a box of another one, and its label is mixed likewise."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from trainers.data.torchvision_sets import torchvision_part


def cut_mixed(
    images: Tensor, labels: Tensor, classes: int, alpha: float, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Return images and class probabilities (N, classes); the whole batch shares one draw from Beta(alpha, alpha)."""
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torchvision draws from this CPU generator for every device
        mixed: tuple[Tensor, Tensor] = torchvision_part("transforms.v2").CutMix(num_classes=classes, alpha=alpha)(
            images, labels
        )
    return mixed
