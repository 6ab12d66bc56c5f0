"""Random crops, flips and rotations of a whole batch, as one gather on the images' device (METHODS.md §1)."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from trainers.config import Augmentation


def augmentation_draws(augmentation: Augmentation, count: int, generator: Generator) -> Tensor | None:
    """Return the random numbers for one batch of `count` images, of shape (4, count), or None if none are needed.

    They come from a CPU generator, so that every device sees the same ones. Those of several batches may be joined and
    moved to a device at once.
    """
    needed = _padding(augmentation) or augmentation.flip or augmentation.rotation
    return torch.rand(4, count, generator=generator) if needed else None


def augment(images: Tensor, augmentation: Augmentation, draws: Tensor | None) -> Tensor:
    """Return images (N, C, H, W) of any type, cropped, then flipped, then rotated, as by torchvision's transforms.

    `draws` must be on the images' device. A rotated pixel takes the value of the nearest source pixel, or 0 if that
    lies outside.
    """
    if draws is None:
        return images
    count, _, height, width = images.shape
    padding, device = _padding(augmentation), images.device
    rows = torch.arange(height, device=device).view(1, height, 1).expand(count, height, 1)
    columns = torch.arange(width, device=device).view(1, 1, width).expand(count, 1, width)
    inside: Tensor | None = None
    if augmentation.rotation:
        angles = (draws[3] * 2 - 1) * augmentation.rotation
        rows, columns = _rotated(angles, height, width)
        inside = _within(rows, height) & _within(columns, width)
    if augmentation.flip:
        flipped = (draws[2] < 0.5).view(count, 1, 1)
        columns = torch.where(flipped, width - 1 - columns, columns)
    if padding:
        shifts = (draws[:2] * (2 * padding + 1)).long() - padding
        rows = rows + shifts[0].view(count, 1, 1)
        columns = columns + shifts[1].view(count, 1, 1)
        if augmentation.crop == "zero":
            crop_inside = _within(rows, height) & _within(columns, width)
            inside = crop_inside if inside is None else inside & crop_inside
        else:
            rows, columns = _reflected(rows, height), _reflected(columns, width)
    samples = torch.arange(count, device=device).view(count, 1, 1)
    moved = images[samples, :, rows.clamp(0, height - 1), columns.clamp(0, width - 1)].permute(0, 3, 1, 2)
    return moved.contiguous() if inside is None else moved * inside.unsqueeze(1)


def _padding(augmentation: Augmentation) -> int:
    return augmentation.padding if augmentation.crop != "none" else 0


def _within(positions: Tensor, size: int) -> Tensor:
    return (positions >= 0) & (positions < size)


def _reflected(positions: Tensor, size: int) -> Tensor:
    """Mirror positions at the border pixels, which are not repeated."""
    positions = positions.abs()
    return torch.where(positions >= size, 2 * (size - 1) - positions, positions)


def _rotated(degrees: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the source row and column of each pixel of images rotated counter-clockwise about their centre."""
    radians = degrees.double().view(-1, 1, 1) * (math.pi / 180)
    y = torch.arange(height, device=degrees.device, dtype=torch.float64).view(1, height, 1) + 0.5 - height / 2
    x = torch.arange(width, device=degrees.device, dtype=torch.float64).view(1, 1, width) + 0.5 - width / 2
    cosine, sine = radians.cos(), radians.sin()
    columns = (cosine * x - sine * y + width / 2).floor().long()
    rows = (sine * x + cosine * y + height / 2).floor().long()
    return rows, columns
