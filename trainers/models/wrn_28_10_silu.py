"""WRN-28-10 with SiLU, the network of the 1M-DDPM setting (Gowal et al. 2020, 2021)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from trainers.data.normalization import Normalized
from trainers.models.wrn_34_10 import initialize_fan_out
from trainers.network import Architecture, Shape, Statistics

_MOMENTUM = 0.01


class SiluBlock(nn.Module):
    """A pre-activation block as in the ReLU networks, but with stride 2 it is padded on the right and below only.

    Every BatchNorm's name contains "batchnorm", because the setting's weight decay goes by that name.
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.batchnorm_0 = nn.BatchNorm2d(channels_in, momentum=_MOMENTUM)
        self.conv_0 = nn.Conv2d(
            channels_in, channels_out, 3, stride=stride, padding=1 if stride == 1 else 0, bias=False
        )
        self.batchnorm_1 = nn.BatchNorm2d(channels_out, momentum=_MOMENTUM)
        self.conv_1 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.shortcut = (
            nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False) if channels_in != channels_out else None
        )
        self.stride = stride

    def forward(self, features: Tensor) -> Tensor:
        activated = F.silu(self.batchnorm_0(features))
        skipped = features if self.shortcut is None else self.shortcut(activated)
        padded = activated if self.stride == 1 else F.pad(activated, (0, 1, 0, 1))
        inner = F.silu(self.batchnorm_1(self.conv_0(padded)))
        return self.conv_1(inner).add_(skipped)


class SiluGroup(nn.Module):
    def __init__(self, blocks: int, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            SiluBlock(channels_in, channels_out, stride),
            *[SiluBlock(channels_out, channels_out, 1) for _ in range(blocks - 1)],
        )

    def forward(self, features: Tensor) -> Tensor:
        return self.block(features)


class WideResNetSilu(Normalized):
    depth, width = 28, 10

    def __init__(self, classes: int, shape: Shape, mean: Statistics = None, std: Statistics = None) -> None:
        super().__init__(mean, std)
        blocks = (self.depth - 4) // 6
        widths = [16 * self.width, 32 * self.width, 64 * self.width]
        self.init_conv = nn.Conv2d(shape[0], 16, 3, padding=1, bias=False)
        self.layer = nn.Sequential(
            SiluGroup(blocks, 16, widths[0], 1),
            SiluGroup(blocks, widths[0], widths[1], 2),
            SiluGroup(blocks, widths[1], widths[2], 2),
        )
        self.batchnorm = nn.BatchNorm2d(widths[2], momentum=_MOMENTUM)
        self.logits = nn.Linear(widths[2], classes)
        initialize_fan_out(self)

    def forward(self, images: Tensor) -> Tensor:
        features = self.layer(self.init_conv(self.normalize(images)))
        features = F.silu(self.batchnorm(features))
        features = F.avg_pool2d(features, features.shape[2:])  # global; 8x8 for images of 32x32
        return self.logits(features.flatten(1))


wrn_28_10_silu = Architecture(WideResNetSilu, display="WRN-28-10 (SiLU)", least=8, multiple=4)
