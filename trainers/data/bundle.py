"""A data set in memory or memory-mapped: uint8 images and labels, split into training, validation and test."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from trainers.data.synthetic import SyntheticImages
from trainers.dataset import DatasetFacts
from trainers.plugins import registry

GPU_SHARE = 1 / 3  # largest share of a GPU's free memory for images


@dataclass(frozen=True)
class DataBundle:
    """A data set: images as uint8 (N, C, H, W), labels as int64.

    `validation_*` are None until images are held out.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    validation_images: Tensor | None = None
    validation_labels: Tensor | None = None
    synthetic: SyntheticImages | None = None
    known_sha256: str | None = None  # hash of the images as loaded, if a cache knows it

    @cached_property
    def sha256(self) -> str:
        """Return the SHA-256 of all images and labels, held-out ones included.

        It is computed once per bundle, so ask the bundle that was loaded, before it is limited or split.
        """
        if self.known_sha256 is not None:
            return self.known_sha256
        digest = hashlib.sha256()
        for item in fields(self):
            part = getattr(self, item.name)
            if isinstance(part, Tensor):
                content = part.cpu().contiguous().numpy()
                digest.update(f"{item.name} {content.dtype} {content.shape}".encode())
                digest.update(content.data)
        return digest.hexdigest()

    @property
    def facts(self) -> DatasetFacts:
        """Return the data set's facts; they describe the whole set, also after `limited`."""
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
        """Return the bundle on this device.

        Images that would fill much of a GPU's memory stay where they are and are moved batch by batch. Synthetic images
        stay on disk.
        """
        parts: dict[str, Any] = {
            item.name: part for item in fields(self) if isinstance(part := getattr(self, item.name), Tensor)
        }
        if device.type == "cuda":
            images = sum(part.nbytes for name, part in parts.items() if name.endswith("_images"))
            if images > GPU_SHARE * torch.cuda.mem_get_info(device)[0]:
                parts = {name: part for name, part in parts.items() if not name.endswith("_images")}
        return replace(self, **{name: part.to(device) for name, part in parts.items()})

    def limited(self, train_images: int | None, test_images: int | None) -> DataBundle:
        """Return only the first images of each part. Raise ValueError if more are requested than exist."""
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

    def held_out(self, count: int, position: Literal["start", "end", "spread"]) -> DataBundle:
        """Set `count` training images aside for validation: the first, the last, or evenly spread over each class."""
        if count == 0:
            return self
        samples = len(self.train_images)
        if count >= samples:
            raise ValueError(f"selection.validation = {count} leaves no images for training, of {samples}; lower it")
        trained: Tensor | slice
        held: Tensor | slice
        if position == "spread":
            # Sorted by class, in the order of the file: equal steps take the same share of every class.
            by_class = self.train_labels.argsort(stable=True)
            held = torch.zeros(samples, dtype=torch.bool)
            held[by_class[torch.arange(count) * samples // count]] = True
            trained = ~held
        else:  # slices are views: memory-mapped images stay on disk
            at = count if position == "start" else samples - count
            first, last = slice(0, at), slice(at, None)
            held, trained = (first, last) if position == "start" else (last, first)
            self._check_mixed(self.train_labels[held], position)
        return replace(
            self,
            train_images=self.train_images[trained],
            train_labels=self.train_labels[trained],
            validation_images=self.train_images[held],
            validation_labels=self.train_labels[held],
        )

    def _check_mixed(self, held_out: Tensor, position: str) -> None:
        """Raise ValueError if the data set is sorted by class, so that whole classes would be held out."""
        classes, held_classes = len(self.train_labels.unique()), len(held_out.unique())
        if len(held_out) >= 10 * classes and held_classes <= classes / 2:
            raise ValueError(
                f"the {len(held_out)} images held out at the {position} of {self.name} have {held_classes} of its "
                f"{classes} classes: it is sorted; set selection.validation_from: spread"
            )
