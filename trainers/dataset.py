"""The description of a data set: its facts, readable without opening a file, and its loader. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

# Training images and labels, test images and labels: uint8 (N, C, H, W) and int64 (N).
Parts: TypeAlias = "tuple[Tensor, Tensor, Tensor, Tensor]"


class DataMissing(ValueError):
    """Files of a data set that are missing and cannot be fetched; the message says which, where, and what to do."""


@dataclass(frozen=True)
class DatasetFacts:
    """The size of a data set and the statistics of its training images."""

    classes: int
    shape: tuple[int, int, int]
    train_images: int
    test_images: int
    mean: tuple[float, ...] | None = None  # of each channel in [0, 1]; None: pixels are not standardised
    std: tuple[float, ...] | None = None
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSource:
    """A data set and how to load it.

    `load(folder, download)` returns the images and labels. It raises OSError or RuntimeError if the files are not in
    the folder.
    """

    facts: DatasetFacts
    display: str
    load: Callable[[Path, bool], Parts]
    files: str | None = None  # files that the data folder must hold, in words; None if none
    sha256: str | None = None  # as `DataBundle.sha256` computes it, if known without loading
