"""Weights as safetensors, the state to resume from as a file that torch loads without running code; both atomic.

A bit that flips on a disk leaves a state that torch still loads: its bytes stand behind their own SHA-256.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import save
from torch import nn

RESUME_HEADER = b"robustsweep resume state, sha256 "
SUFFIX = ".safetensors"


class UnusableState(Exception):
    """Why a training cannot go on from what is in its folder."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Whoever reads the path sees the old file or what was written here, also after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # what a kill leaves is found by its name
    try:
        temporary.unlink(missing_ok=True)  # of a process that was killed, or a link that came with a foreign store
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as fault:
        if str(fault.filename) in ("None", str(temporary)):
            fault.filename = str(path)  # the file that is meant, not the one that was to become it
        raise
    finally:
        temporary.unlink(missing_ok=True)


def clear_unfinished(folder: Path) -> None:
    """What a training that was killed while it saved left in its folder, which is its own."""
    for path in (*folder.glob(f".*{SUFFIX}.*.tmp"), *folder.glob(".resume.pt.*.tmp")):
        path.unlink(missing_ok=True)


class KeptWeights:
    """The checkpoints of one training's folder.

    While it trains their names carry their checksum, so that the state between two epochs and the weights that it
    names belong together whenever a kill comes; `finish` gives them the names that records know.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, model: nn.Module) -> dict[str, Any]:
        """The file's checksum and size."""
        content = save({key: tensor.cpu().contiguous() for key, tensor in model.state_dict().items()})
        sha256 = hashlib.sha256(content).hexdigest()
        with replacing(self._interim(name, sha256)) as stream:
            stream.write(content)
        return {"sha256": sha256, "bytes": len(content)}

    def check(self, checkpoints: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises UnusableState where one is lost or damaged."""
        for name, facts in checkpoints.items():
            if self._place(name, facts["sha256"]) is None:
                raise UnusableState(f"{name}{SUFFIX} is lost or damaged")

    def drop_others(self, checkpoints: Mapping[str, Mapping[str, Any]]) -> None:
        """Delete what the state no longer names; final names stay, they are replaced at the end."""
        named = {self._interim(name, facts["sha256"]) for name, facts in checkpoints.items()}
        for path in self.folder.glob(f"*-{'[0-9a-f]' * 16}{SUFFIX}"):
            if path not in named:
                path.unlink(missing_ok=True)

    def finish(self, checkpoints: Mapping[str, Mapping[str, Any]]) -> None:
        for name, facts in checkpoints.items():
            interim = self._interim(name, facts["sha256"])
            if interim.exists():
                interim.replace(self.folder / f"{name}{SUFFIX}")
        self.drop_others({})

    def _interim(self, name: str, sha256: str) -> Path:
        return self.folder / f"{name}-{sha256[:16]}{SUFFIX}"

    def _place(self, name: str, sha256: str) -> Path | None:
        """A training that was killed after `finish` has the final names already."""
        for path in (self._interim(name, sha256), self.folder / f"{name}{SUFFIX}"):
            if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
                return path
        return None


def save_resume(path: Path, state: dict[str, Any]) -> None:
    content = io.BytesIO()
    torch.save(state, content)
    with replacing(path) as stream:
        stream.write(RESUME_HEADER + hashlib.sha256(content.getbuffer()).hexdigest().encode() + b"\n")
        stream.write(content.getbuffer())


def load_resume(path: Path) -> dict[str, Any] | None:
    """What `save_resume` wrote; None without a file, UnusableState where it is not what was written."""
    try:
        header, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise UnusableState(f"{path.name} cannot be read: {fault.strerror}") from None
    if not header.startswith(RESUME_HEADER):
        raise UnusableState(f"{path.name} has no checksum")
    if header != RESUME_HEADER + hashlib.sha256(content).hexdigest().encode():
        raise UnusableState(f"{path.name} does not have its checksum")
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch has a dozen types for garbage, and a text that advises to trust the file
        raise UnusableState(f"{path.name} is no state ({type(error).__name__})") from None
    if not isinstance(state, dict):
        raise UnusableState(f"{path.name} holds a {type(state).__name__}")
    return state
