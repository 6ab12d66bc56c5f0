"""Standardisation as the first layer, so that every attack sees pixels in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalized(nn.Module):
    """A network whose input is standardised per channel; without mean and std pixels pass unchanged."""

    memory_format = (
        torch.channels_last
    )  # of the weights on a CPU, where it saves a quarter of a ResNet's time; GPUs always
    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
        super().__init__()
        self.standardizes = mean is not None and std is not None
        if mean is not None and std is not None:
            self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
            self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def normalize(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std if self.standardizes else images
