"""torchvision beside a CPU-only torch.

The package index's torchvision is built against CUDA torch. Beside a CPU torch its compiled part cannot load, and
`import torchvision` stops at "operator torchvision::nms does not exist": it registers shape rules for two detection
operators that nobody declared. Data sets need neither operator, so declaring them is enough.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def torchvision_datasets() -> ModuleType:
    try:
        return importlib.import_module("torchvision.datasets")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    for module in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[module]  # the half-imported parts of the failed attempt
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", _SIGNATURE)
    return importlib.import_module("torchvision.datasets")
