"""One data set, in memory or mapped into it: uint8 images and labels, split into training, validation and test."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from trainers import registry
from trainers.data.synthetic import SyntheticImages
from trainers.dataset import DatasetFacts

GPU_SHARE = 1 / 3  # of a GPU's free memory that images may take


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
    known_sha256: str | None = None  # of the images as they were loaded, where a cache names them by it

    @cached_property
    def sha256(self) -> str:
        """Of all images and labels, held-out ones included: two copies of a data set that differ anywhere differ here.

        Computed once for a bundle in memory, so the bundle as it was loaded is the one to ask.
        """
        if self.known_sha256 is not None:
            return self.known_sha256
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
        """Everything on this device, but for images that would fill much of a GPU's memory: they stay, and go there
        batch by batch. Synthetic images stay on disk."""
        parts: dict[str, Any] = {
            one.name: part for one in fields(self) if isinstance(part := getattr(self, one.name), Tensor)
        }
        if device.type == "cuda":
            images = sum(part.nbytes for name, part in parts.items() if name.endswith("_images"))
            if images > GPU_SHARE * torch.cuda.mem_get_info(device)[0]:
                parts = {name: part for name, part in parts.items() if not name.endswith("_images")}
        return replace(self, **{name: part.to(device) for name, part in parts.items()})

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
        kept: Tensor | slice
        held: Tensor | slice
        if place == "spread":
            # Every class in turn, in the order of the file: steps of equal length take each class's own share.
            by_class = self.train_labels.argsort(stable=True)
            held = torch.zeros(samples, dtype=torch.bool)
            held[by_class[torch.arange(count) * samples // count]] = True
            kept = ~held
        else:  # slices are views: images that are mapped from disk stay there
            at = count if place == "start" else samples - count
            first, last = slice(0, at), slice(at, None)
            held, kept = (first, last) if place == "start" else (last, first)
            self._check_mixed(self.train_labels[held], place)
        return replace(
            self,
            train_images=self.train_images[kept],
            train_labels=self.train_labels[kept],
            validation_images=self.train_images[held],
            validation_labels=self.train_labels[held],
        )

    def _check_mixed(self, held_out: Tensor, place: str) -> None:
        """A data set that is sorted by class would hold out a class or two as a whole."""
        present, found = len(self.train_labels.unique()), len(held_out.unique())
        if len(held_out) >= 10 * present and found <= present / 2:
            raise ValueError(
                f"the {len(held_out)} images held out at the {place} of {self.name} have {found} of its {present} "
                "classes: it is sorted; set selection.validation_from: spread"
            )
