"""The samples of each batch, which depend only on (seed, epoch): a resumed epoch sees the same batches."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from trainers.config import Augmentation
from trainers.data.augmentation import augment, augmentation_draws
from trainers.data.bundle import DataBundle
from trainers.data.cutmix import cut_mixed
from trainers.loop.device_copies import moved


def derived_seed(seed: int, purpose: str, epoch: int = 0) -> int:
    """Return the seed of an independent stream of random numbers for each purpose and epoch."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{epoch}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator_for(seed: int, purpose: str, epoch: int = 0, device: str | torch.device = "cpu") -> Generator:
    """Return a generator of that stream."""
    return Generator(device).manual_seed(derived_seed(seed, purpose, epoch))


@dataclass(frozen=True)
class TrainingImages:
    """The training images, in augmented batches on their device.

    With synthetic images a batch holds int(fraction * batch_size) of them, drawn with replacement, and real images from
    a fresh permutation. An epoch then has ceil(all training images, held-out ones included / batch_size) batches.
    """

    data: DataBundle
    batch_size: int
    augmentation: Augmentation
    seed: int

    @property
    def batches(self) -> int:
        """Return the number of batches in an epoch."""
        samples = len(self.data.train_images)
        if self.data.synthetic is not None and self.data.validation_images is not None:
            samples += len(self.data.validation_images)
        return math.ceil(samples / self.batch_size)

    def epoch(self, epoch: int, dtype: torch.dtype = torch.float32) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (images in [0, 1], labels, indices) of each batch.

        Indices are positions in the training set, or -1 for a synthetic image. All random numbers of the epoch are
        drawn on the CPU at its start, so that every device sees the same ones.
        """
        order = generator_for(self.seed, "order", epoch)
        augmentation = generator_for(self.seed, "augmentation", epoch)
        mixing, alpha = generator_for(self.seed, "cutmix", epoch), self.augmentation.cutmix
        permutation = torch.randperm(len(self.data.train_images), generator=order)
        planned = list(self._batches(permutation, order))
        sizes = [len(indices) for indices, _ in planned]
        device = self.data.train_labels.device
        positions = moved(torch.cat([indices for indices, _ in planned]), device).split(sizes)
        drawn = [augmentation_draws(self.augmentation, size, augmentation) for size in sizes]
        needed = [draw for draw in drawn if draw is not None]
        draws = moved(torch.cat(needed, dim=1), device).split(sizes, dim=1) if needed else drawn
        for (indices, synthetic), device_indices, numbers in zip(planned, positions, draws, strict=True):
            images, labels = self._gather(indices, device_indices, synthetic)
            pixels = augment(images, self.augmentation, numbers).to(dtype).div_(255)
            if alpha is not None:
                pixels, labels = cut_mixed(pixels, labels, self.data.classes, alpha, mixing)
            yield pixels, labels, device_indices

    def _batches(self, permutation: Tensor, order: Generator) -> Iterator[tuple[Tensor, Tensor | None]]:
        synthetic = self.data.synthetic
        if synthetic is None:
            for indices in permutation.split(self.batch_size):
                yield indices, None
            return
        drawn = int(self.batch_size * synthetic.fraction)
        real = self.batch_size - drawn
        for batch in range(self.batches):
            chosen = permutation[batch * real : (batch + 1) * real]
            positions = torch.randint(len(synthetic), (drawn,), generator=order)
            mixed = torch.randperm(len(chosen) + drawn, generator=order)
            indices = torch.cat([chosen, torch.full((drawn,), -1)])[mixed]
            # Aligned with `indices`: the synthetic image wherever that is -1.
            yield indices, torch.cat([torch.full((len(chosen),), -1), positions])[mixed]

    def _gather(self, indices: Tensor, device_indices: Tensor, synthetic: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the images and labels of a batch.

        `device_indices` equal `indices`, on the labels' device. A large set of images stays on the host.
        """
        device, stored = self.data.train_labels.device, self.data.train_images
        positions = device_indices.clamp(min=0)
        rows = positions if stored.device == device else indices.clamp(min=0)
        images, labels = moved(stored[rows], device), self.data.train_labels[positions]
        if synthetic is not None and self.data.synthetic is not None:
            drawn = torch.nonzero(indices < 0).flatten()
            extra_images, extra_labels = self.data.synthetic.take(synthetic[drawn])
            where = moved(drawn, device)
            images[where], labels[where] = moved(extra_images, device), moved(extra_labels, device)
        return images, labels
