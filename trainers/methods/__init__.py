"""The methods: one file each, named after the method. Nothing is listed; a file that is put here is found.

Files load when first asked for, so that listing names costs no torch.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainers.method import Method


@cache
def names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py")))


@cache
def load(name: str) -> type[Method]:
    return method_in(importlib.import_module(f"trainers.methods.{name}"), f"{name}.py")


def method_in(module: ModuleType, file: str) -> type[Method]:
    """The one method that a module defines; a ValueError says what is wrong with it."""
    from trainers.method import Method

    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Method) and value.__module__ == module.__name__
    ]
    if not found:
        raise ValueError(f"{file} defines no method; write a class that derives from trainers.method.Method")
    if len(found) > 1:
        classes = ", ".join(value.__name__ for value in found)
        raise ValueError(f"{file} defines {len(found)} methods ({classes}); a file holds one")
    method = found[0]
    if method.loss is Method.loss and method.batch_loss is Method.batch_loss:
        raise ValueError(f"{file}: {method.__name__} defines no loss(self, model, images, labels, attack)")
    return method
