"""WRN-34-10 with ReLU (Zagoruyko & Komodakis 2016), as in the AWP code; SEAT calls the same network "WRN-32-10"."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from trainers.data.normalization import Normalized
from trainers.network import Architecture, Shape, Statistics


class WideBlock(nn.Module):
    """A pre-activation block. A 1x1 shortcut takes the activated input, an identity shortcut the raw input."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.convShortcut = (  # named as in RobustBench
            nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False) if channels_in != channels_out else None
        )

    def forward(self, features: Tensor) -> Tensor:
        activated = F.relu(self.bn1(features), inplace=True)
        skipped = features if self.convShortcut is None else self.convShortcut(activated)
        inner = F.relu(self.bn2(self.conv1(activated)), inplace=True)
        return self.conv2(inner).add_(skipped)


class WideGroup(nn.Module):
    def __init__(self, blocks: int, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.layer = nn.Sequential(
            WideBlock(channels_in, channels_out, stride),
            *[WideBlock(channels_out, channels_out, 1) for _ in range(blocks - 1)],
        )

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(features)


class WideResNet34x10(Normalized):
    def __init__(self, classes: int, shape: Shape, mean: Statistics = None, std: Statistics = None) -> None:
        super().__init__(mean, std)
        blocks = (34 - 4) // 6
        self.conv1 = nn.Conv2d(shape[0], 16, 3, padding=1, bias=False)
        self.block1 = WideGroup(blocks, 16, 160, 1)
        self.block2 = WideGroup(blocks, 160, 320, 2)
        self.block3 = WideGroup(blocks, 320, 640, 2)
        self.bn1 = nn.BatchNorm2d(640)
        self.fc = nn.Linear(640, classes)
        initialize_fan_out(self)

    def forward(self, images: Tensor) -> Tensor:
        features = self.conv1(self.normalize(images))
        features = self.block3(self.block2(self.block1(features)))
        features = F.relu(self.bn1(features), inplace=True)
        features = F.avg_pool2d(features, features.shape[2:])  # global; 8x8 for images of 32x32
        return self.fc(features.flatten(1))


def initialize_fan_out(model: nn.Module) -> None:
    """Initialise convolutions with N(0, 2 / (k·k·out)) and biases of linear layers with 0.

    BatchNorm keeps PyTorch's default weights 1 and biases 0.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
            nn.init.normal_(module.weight, 0.0, math.sqrt(2 / fan_out))
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


wrn_34_10 = Architecture(WideResNet34x10, display="WRN-34-10", least=8)
