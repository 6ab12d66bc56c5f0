"""Weights as safetensors, and the state to resume from as a file that torch loads without running code.

Both are written atomically. torch still loads a state in which a bit has flipped on disk, so the state is stored
behind its own SHA-256.
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
    """A saved state from which a training cannot be resumed; the message says why."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a stream that atomically replaces the file at `path`, also if the machine crashes."""
    temporary = path.with_name(
        f".{path.name}.{os.getpid()}.tmp"
    )  # named so that leftovers of a killed process can be found
    try:
        temporary.unlink(missing_ok=True)  # from a killed process, or a link in a copied store
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as fault:
        if str(fault.filename) in ("None", str(temporary)):
            fault.filename = str(path)  # name the target, not the temporary file
        raise
    finally:
        temporary.unlink(missing_ok=True)


def clear_unfinished(folder: Path) -> None:
    """Delete temporary files that a training killed while saving left in its own folder."""
    for path in (*folder.glob(f".*{SUFFIX}.*.tmp"), *folder.glob(".resume.pt.*.tmp")):
        path.unlink(missing_ok=True)


class KeptWeights:
    """The checkpoints in one training's folder.

    During training their names contain their checksum, so that the state between two epochs and the weights that it
    names match whenever the process is killed. `finish` renames them to the names used in records.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, model: nn.Module) -> dict[str, Any]:
        """Write the model's weights and return the file's checksum and size in bytes."""
        content = save({key: tensor.cpu().contiguous() for key, tensor in model.state_dict().items()})
        sha256 = hashlib.sha256(content).hexdigest()
        with replacing(self._interim(name, sha256)) as stream:
            stream.write(content)
        return {"sha256": sha256, "bytes": len(content)}

    def check(self, checkpoints: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise UnusableState if a checkpoint is missing or damaged."""
        for name, facts in checkpoints.items():
            if self._path_of(name, facts["sha256"]) is None:
                raise UnusableState(f"{name}{SUFFIX} is missing or damaged")

    def drop_others(self, checkpoints: Mapping[str, Mapping[str, Any]]) -> None:
        """Delete interim checkpoints that the state no longer names. Final names stay until `finish` replaces them."""
        named = {self._interim(name, facts["sha256"]) for name, facts in checkpoints.items()}
        for path in self.folder.glob(f"*-{'[0-9a-f]' * 16}{SUFFIX}"):
            if path not in named:
                path.unlink(missing_ok=True)

    def finish(self, checkpoints: Mapping[str, Mapping[str, Any]]) -> None:
        """Rename the checkpoints to their final names and delete all other interim ones."""
        for name, facts in checkpoints.items():
            interim = self._interim(name, facts["sha256"])
            if interim.exists():
                interim.replace(self.folder / f"{name}{SUFFIX}")
        self.drop_others({})

    def _interim(self, name: str, sha256: str) -> Path:
        return self.folder / f"{name}-{sha256[:16]}{SUFFIX}"

    def _path_of(self, name: str, sha256: str) -> Path | None:
        """Return the path of an intact checkpoint. A training killed after `finish` already has final names."""
        for path in (self._interim(name, sha256), self.folder / f"{name}{SUFFIX}"):
            if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
                return path
        return None


def save_resume(path: Path, state: dict[str, Any]) -> None:
    """Write the state atomically, with its SHA-256 in front."""
    content = io.BytesIO()
    torch.save(state, content)
    with replacing(path) as stream:
        stream.write(RESUME_HEADER + hashlib.sha256(content.getbuffer()).hexdigest().encode() + b"\n")
        stream.write(content.getbuffer())


def load_resume(path: Path) -> dict[str, Any] | None:
    """Return what `save_resume` wrote, or None if there is no file. Raise UnusableState if it is damaged."""
    try:
        header, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise UnusableState(f"{path.name} cannot be read: {fault.strerror}") from None
    if not header.startswith(RESUME_HEADER):
        raise UnusableState(f"{path.name} has no checksum")
    if header != RESUME_HEADER + hashlib.sha256(content).hexdigest().encode():
        raise UnusableState(f"{path.name} does not match its checksum")
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types here, and its text advises to trust the file
        raise UnusableState(f"{path.name} is not a saved state ({type(error).__name__})") from None
    if not isinstance(state, dict):
        raise UnusableState(f"{path.name} holds a {type(state).__name__}")
    return state
