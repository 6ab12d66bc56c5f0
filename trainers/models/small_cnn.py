"""A small network for 8x8 and 28x28 grey images: few operations, as each one's start-up counts here."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from trainers.models.normalization import Normalized


class SmallCNN(Normalized):
    """Two strided convolutions, one BatchNorm, two linear layers."""

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__(mean, std)
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 32, 3, stride=1 if height <= 8 else 2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 4, stride=2, padding=1)
        reduced = 2 if height <= 8 else 4
        self.fc1 = nn.Linear(64 * (height // reduced) * (width // reduced), 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = F.relu(self.bn1(self.conv1(self.normalize(images))), inplace=True)
        features = F.relu(self.conv2(features), inplace=True)
        return self.fc2(F.relu(self.fc1(features.flatten(1)), inplace=True))
