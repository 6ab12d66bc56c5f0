"""ResNet-18 for 64x64 images (He et al. 2016, "Deep Residual Learning for Image Recognition").

The stem is a 3x3 convolution of stride 2 without pooling. The blocks see features of 32x32, 16x16, 8x8 and 4x4, as for
CIFAR and at CIFAR's cost, a quarter of that of a stem of stride 1 on 64x64 images.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from trainers.data.normalization import Normalized
from trainers.network import Architecture, Shape, Statistics


class BasicBlock(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.shortcut = (
            nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), nn.BatchNorm2d(channels_out)
            )
            if stride != 1 or channels_in != channels_out
            else None
        )

    def forward(self, features: Tensor) -> Tensor:
        skipped = features if self.shortcut is None else self.shortcut(features)
        inner = F.relu(self.bn1(self.conv1(features)), inplace=True)
        return F.relu(self.bn2(self.conv2(inner)).add_(skipped), inplace=True)


class ResNet18(Normalized):
    def __init__(self, classes: int, shape: Shape, mean: Statistics = None, std: Statistics = None) -> None:
        super().__init__(mean, std)
        self.conv1 = nn.Conv2d(shape[0], 64, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.linear = nn.Linear(512, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = F.relu(self.bn1(self.conv1(self.normalize(images))), inplace=True)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            features = layer(features)
        return self.linear(F.avg_pool2d(features, features.shape[2:]).flatten(1))


resnet18_64 = Architecture(ResNet18, display="ResNet-18", least=16)
