"""torchvision's data sets as tensors, also beside a CPU-only torch.

The package index's torchvision is built against CUDA torch. Beside a CPU torch its compiled part cannot load, and
`import torchvision` stops at "operator torchvision::nms does not exist": it registers shape rules for two detection
operators that nobody declared. Data sets and transforms need neither operator, so declaring them is enough.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.dataset import Parts

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def torchvision_datasets() -> ModuleType:
    return torchvision_part("datasets")


def torchvision_part(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"torchvision.{name}")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    for module in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[module]  # the half-imported parts of the failed attempt
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", _SIGNATURE)
    return importlib.import_module(f"torchvision.{name}")


def cifar_parts(name: str, folder: Path, download: bool) -> Parts:
    """Of CIFAR10 or CIFAR100, which torchvision keeps with the channels last."""
    source = getattr(torchvision_datasets(), name)
    return (
        *_channels_first(source(folder, train=True, download=download)),
        *_channels_first(source(folder, train=False, download=download)),
    )


def _channels_first(source: Any) -> tuple[Tensor, Tensor]:
    images = torch.from_numpy(np.ascontiguousarray(source.data.transpose(0, 3, 1, 2)))
    return images, torch.tensor(source.targets, dtype=torch.int64)
