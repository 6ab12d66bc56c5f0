"""One data set in memory: uint8 images and labels, split into training, validation and test."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from trainers import registry
from trainers.data.synthetic import SyntheticImages
from trainers.dataset import DatasetFacts


@dataclass(frozen=True)
class DataBundle:
    """Images are uint8 (N, C, H, W), labels int64. `validation_*` are None until images are held out."""

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    validation_images: Tensor | None = None
    validation_labels: Tensor | None = None
    synthetic: SyntheticImages | None = None

    @cached_property
    def sha256(self) -> str:
        """Of all images and labels, held-out ones included: two copies of a data set that differ anywhere differ here.

        Computed once for a bundle in memory, so the bundle as it was loaded is the one to ask.
        """
        digest = hashlib.sha256()
        for one in fields(self):
            part = getattr(self, one.name)
            if isinstance(part, Tensor):
                content = part.cpu().contiguous().numpy()
                digest.update(f"{one.name} {content.dtype} {content.shape}".encode())
                digest.update(content.data)
        return digest.hexdigest()

    @property
    def facts(self) -> DatasetFacts:
        return registry.DATASETS.get(self.name).facts

    @property
    def classes(self) -> int:
        return self.facts.classes

    @property
    def mean(self) -> tuple[float, ...] | None:
        return self.facts.mean

    @property
    def std(self) -> tuple[float, ...] | None:
        return self.facts.std

    def to(self, device: torch.device) -> DataBundle:
        """Everything that is in memory on this device; synthetic images stay on disk."""
        moved = {
            f.name: getattr(self, f.name).to(device) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)

    def limited(self, train_images: int | None, test_images: int | None) -> DataBundle:
        """Only the first images of each part; more than there are is a fault, not a shorter answer."""
        for part, wanted, present in (
            ("train_images", train_images, len(self.train_images)),
            ("test_images", test_images, len(self.test_images)),
        ):
            if wanted is not None and wanted > present:
                raise ValueError(f"{part} = {wanted}, but {self.name} has only {present}; give at most {present}")
        return replace(
            self,
            train_images=self.train_images[:train_images],
            train_labels=self.train_labels[:train_images],
            test_images=self.test_images[:test_images],
            test_labels=self.test_labels[:test_images],
        )

    def held_out(self, count: int, place: Literal["start", "end", "spread"]) -> DataBundle:
        """`count` training images set aside for validation: the first, the last, or evenly spread over each class."""
        if count == 0:
            return self
        samples = len(self.train_images)
        if count >= samples:
            raise ValueError(f"selection.validation = {count} leaves none of the {samples} training images; lower it")
        held = torch.zeros(samples, dtype=torch.bool)
        if place == "spread":
            # Every class in turn, in the order of the file: steps of equal length take each class's own share.
            by_class = self.train_labels.argsort(stable=True)
            held[by_class[torch.arange(count) * samples // count]] = True
        else:
            held[slice(0, count) if place == "start" else slice(samples - count, None)] = True
        kept = ~held
        return replace(
            self,
            train_images=self.train_images[kept],
            train_labels=self.train_labels[kept],
            validation_images=self.train_images[held],
            validation_labels=self.train_labels[held],
        )
