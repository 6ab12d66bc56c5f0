"""Weights as safetensors, the state to resume from as a file that torch loads without running code; both atomic."""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import nn


def write_atomically(path: Path, content: bytes) -> None:
    """Whoever reads sees the old file or the new one, also after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def save_weights(path: Path, model: nn.Module) -> dict[str, Any]:
    """The file's checksum and size."""
    content = save({name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()})
    write_atomically(path, content)
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def load_weights(path: Path, model: nn.Module) -> None:
    model.load_state_dict(load_file(path))


def save_resume(path: Path, state: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load_resume(path: Path) -> dict[str, Any] | None:
    """What `save_resume` wrote; None without a file. A damaged one costs a fresh start, never a wrong number."""
    if not path.exists():
        return None
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
        warnings.warn(f"{path} cannot be read ({error}); training starts again from its first epoch", stacklevel=2)
        return None
