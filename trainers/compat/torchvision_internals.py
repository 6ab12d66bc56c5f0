"""torchvision beside a torch of another build, for our own imports and for those of a user's files.

The package index's torchvision is built against CUDA torch. Beside a CPU-only torch its compiled part cannot load, and
`import torchvision` stops with "operator torchvision::nms does not exist": it registers shape rules for two detection
operators that nobody has declared. Networks, transforms and data sets need neither operator, so declaring them is
enough; a call of one still raises torchvision's own explanation. A torchvision that loads is left as it is.

This file loads neither torch nor torchvision.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

OPERATORS = ("nms", "qnms")
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
MISSING = "operator torchvision::nms does not exist"


def make_importable() -> None:
    """Make the next `import torchvision` succeed, whoever writes it. Call it before a user's file runs."""
    if sys.meta_path[:1] != [_FINDER]:
        sys.meta_path[:] = [_FINDER, *(finder for finder in sys.meta_path if finder is not _FINDER)]


class _Loader(SourceFileLoader):
    """Runs torchvision's own file; where its operators are missing, declares them and runs it once more."""

    def exec_module(self, module: ModuleType) -> None:
        try:
            return super().exec_module(module)
        except RuntimeError as error:
            if MISSING not in str(error):
                raise
        for name in [name for name in sys.modules if name.startswith("torchvision.")]:
            del sys.modules[name]  # what the failed attempt has imported
        import torch

        for operator in OPERATORS:
            torch.library.define(f"torchvision::{operator}", SIGNATURE)
        super().exec_module(module)


class _Finder:
    """Finds torchvision where the other finders do, and gives it the loader above. Ignores every other name."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torchvision":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                if type(spec.loader) is SourceFileLoader:
                    spec.loader = _Loader(spec.loader.name, spec.loader.path)
                return spec
        return None


_FINDER: Any = _Finder()
