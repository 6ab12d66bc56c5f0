"""torchvision's data sets as tensors, also with a CPU-only torch."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.compat.torchvision_internals import make_importable
from trainers.dataset import Parts


def torchvision_datasets() -> ModuleType:
    return torchvision_part("datasets")


def torchvision_part(name: str) -> ModuleType:
    """Import a submodule of torchvision, also with a CPU-only torch."""
    make_importable()
    return importlib.import_module(f"torchvision.{name}")


def cifar_parts(name: str, folder: Path, download: bool) -> Parts:
    """Return CIFAR10 or CIFAR100, which torchvision stores with the channels last."""
    source = getattr(torchvision_datasets(), name)
    return (
        *_channels_first(source(folder, train=True, download=download)),
        *_channels_first(source(folder, train=False, download=download)),
    )


def _channels_first(source: Any) -> tuple[Tensor, Tensor]:
    images = torch.from_numpy(np.ascontiguousarray(source.data.transpose(0, 3, 1, 2)))
    return images, torch.tensor(source.targets, dtype=torch.int64)
