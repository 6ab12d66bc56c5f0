"""What a data set is: its facts, readable without opening a file, and how its images are loaded. Loads no torch."""

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
    """Files of a data set are absent and cannot be had; the message says which, where, and the way out."""


@dataclass(frozen=True)
class DatasetFacts:
    classes: int
    shape: tuple[int, int, int]
    train_images: int
    test_images: int
    mean: tuple[float, ...] | None = None  # None: pixels go into the network as they are
    std: tuple[float, ...] | None = None
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSource:
    """`load(folder, download)` raises OSError or RuntimeError where the files are not in the folder."""

    facts: DatasetFacts
    display: str
    load: Callable[[Path, bool], Parts]
    files: str | None = None  # what must be in the data folder, in words; None: nothing
    sha256: str | None = None  # of the images, as `DataBundle.sha256` computes it, where it is known without loading
