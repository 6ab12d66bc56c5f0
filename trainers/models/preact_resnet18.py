"""PreActResNet-18 for images of any size (He et al. 2016, "Identity Mappings in Deep Residual Networks")."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from trainers.data.normalization import Normalized
from trainers.network import Architecture, Shape, Statistics


class PreActBlock(nn.Module):
    """A pre-activation block. A 1x1 shortcut takes the activated input, an identity shortcut the raw input."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False))
            if stride != 1 or channels_in != channels_out
            else None
        )

    def forward(self, features: Tensor) -> Tensor:
        activated = F.relu(self.bn1(features), inplace=True)
        skipped = features if self.shortcut is None else self.shortcut(activated)
        inner = F.relu(self.bn2(self.conv1(activated)), inplace=True)
        return self.conv2(inner).add_(skipped)


class PreActResNet18(Normalized):
    """The network, with PyTorch's default initialisation as in the AWP code."""

    def __init__(self, classes: int, shape: Shape, mean: Statistics = None, std: Statistics = None) -> None:
        super().__init__(mean, std)
        self.conv1 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
        self.layer1 = nn.Sequential(PreActBlock(64, 64, 1), PreActBlock(64, 64, 1))
        self.layer2 = nn.Sequential(PreActBlock(64, 128, 2), PreActBlock(128, 128, 1))
        self.layer3 = nn.Sequential(PreActBlock(128, 256, 2), PreActBlock(256, 256, 1))
        self.layer4 = nn.Sequential(PreActBlock(256, 512, 2), PreActBlock(512, 512, 1))
        self.bn = nn.BatchNorm2d(512)
        self.linear = nn.Linear(512, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = self.conv1(self.normalize(images))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            features = layer(features)
        features = F.relu(self.bn(features), inplace=True)
        features = F.avg_pool2d(features, features.shape[2:])  # global; 4x4 for images of 32x32
        return self.linear(features.flatten(1))


preact_resnet18 = Architecture(PreActResNet18, display="PreActResNet-18", least=8)
