"""Weights as safetensors, the state to resume from as a file that torch loads without running code; both atomic."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import save
from torch import nn


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Whoever reads the path sees the old file or what was written here, also after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # what a kill leaves is found by its name
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def save_weights(path: Path, model: nn.Module) -> dict[str, Any]:
    """The file's checksum and size."""
    content = save({name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()})
    with replacing(path) as stream:
        stream.write(content)
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def save_resume(path: Path, state: dict[str, Any]) -> None:
    with replacing(path) as stream:
        torch.save(state, stream)


def load_resume(path: Path) -> dict[str, Any] | None:
    """What `save_resume` wrote; None without a file. A damaged one costs a fresh start, never a wrong number."""
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise TypeError(f"it holds a {type(state).__name__}")
        return state
    except Exception as error:  # torch has a dozen types for garbage, and a text that advises to trust the file
        reason = type(error).__name__
        warnings.warn(f"{path} cannot be read ({reason}); training starts again from its first epoch", stacklevel=2)
        return None
