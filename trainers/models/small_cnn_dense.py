"""The small CNN for the smallest images on a CPU: its convolution is computed as one matrix product."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from trainers.models.small_cnn import SmallCNN
from trainers.network import Architecture, Shape, Statistics


class DenseSmallCNN(SmallCNN):
    """A network with the small CNN's weights, names and outputs.

    On 4x4 squares a convolution takes longer than a matrix product that also multiplies the zeros between its weights.
    The matrix grows with the square of the number of pixels.
    """

    joins: Tensor

    def __init__(self, classes: int, shape: Shape, mean: Statistics = None, std: Statistics = None) -> None:
        super().__init__(classes, shape, mean, std)
        channels, height, width = shape
        self.maps = (self.conv1.out_channels, height // 2, width // 2)
        self.register_buffer("joins", self._joins(shape), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        pixels = self.normalize(images).flatten(1)
        weights = F.pad(self.conv1.weight.flatten(), (1, 0)).index_select(0, self.joins)
        maps = F.linear(pixels, weights.view(-1, pixels.shape[1])).view(len(images), *self.maps)
        features = F.relu(self.bn1(maps), inplace=True)
        return self.fc2(F.relu(self.fc1(features.flatten(1)), inplace=True))

    def _joins(self, shape: Shape) -> Tensor:
        """Return, for each feature and pixel, the number of the weight that joins them, from 1, or 0 if none does.

        The convolution itself provides it, with these numbers as its weights: applied to an image with a single bright
        pixel, it returns the number of the joining weight at every feature.
        """
        count = shape[0] * shape[1] * shape[2]
        numbers = torch.arange(1, self.conv1.weight.numel() + 1, dtype=torch.float64).view_as(self.conv1.weight)
        bright = torch.eye(count, dtype=torch.float64).view(count, *shape)
        seen = F.conv2d(F.pixel_unshuffle(bright, 2), numbers, padding=1)
        return seen.flatten(1).t().flatten().long()


small_cnn_dense = Architecture(DenseSmallCNN, display="small CNN", most=16, multiple=2)
