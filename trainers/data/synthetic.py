"""Extra training images from an .npz (`image`, `label`), read from disk as they are drawn (the 1M-DDPM setting).

See Gowal et al. 2021, "Improving Robustness using Generated Data". A million images take 3 GB, so they are
memory-mapped and never copied whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainers.dataset import DataMissing
from trainers.plugins.own.arrays import array_header


@dataclass(frozen=True)
class SyntheticImages:
    """Generated training images and their share of each batch."""

    images: np.ndarray  # uint8 (N, H, W, C), memory-mapped
    labels: np.ndarray
    fraction: float = 0.0  # of each batch

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images, uint8 (N, C, H, W), and labels at these positions."""
        positions = indices.numpy()
        images = torch.from_numpy(np.ascontiguousarray(self.images[positions].transpose(0, 3, 1, 2)))
        return images, torch.from_numpy(self.labels[positions].astype(np.int64))


def open_synthetic(file: str, data_dir: Path, shape: tuple[int, int, int], classes: int) -> SyntheticImages:
    """Open the file, relative to `data_dir`. Raise DataMissing if it is missing or does not fit the data set."""
    path = _existing(file, data_dir, f"N x {shape[1]} x {shape[2]} x {shape[0]}")
    try:
        images, labels = _mapped_member(path, "image"), _mapped_member(path, "label")
    except zipfile.BadZipFile:
        raise DataMissing(f"{path} is not an .npz file (a zip of arrays); fetch it again") from None
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (shape[1], shape[2], shape[0]):
        raise DataMissing(
            f"{path}: 'image' is {images.dtype} of shape {images.shape}; it must be uint8 of shape "
            f"(N, {shape[1]}, {shape[2]}, {shape[0]})"
        )
    if labels.ndim != 1 or len(labels) != len(images) or not len(images) or labels.dtype.kind not in "iu":
        raise DataMissing(f"{path}: 'label' must hold one whole number for each of the {len(images)} images")
    if labels.min() < 0 or labels.max() >= classes:
        raise DataMissing(f"{path}: labels go from {labels.min()} to {labels.max()}, not 0 to {classes - 1}")
    return SyntheticImages(images, labels)


def file_sha256(file: str, data_dir: Path) -> str:
    """Return the SHA-256 of the file's bytes. It is computed again only if the file has changed."""
    path = _existing(file, data_dir)
    facts = path.stat()
    return _sha256_of(path, facts.st_size, facts.st_mtime_ns)


def _existing(file: str, data_dir: Path, shape: str = "N x height x width x channels") -> Path:
    """Return the path of the file. Raise DataMissing, with the expected shape of its images, if it is missing."""
    path = Path(file) if Path(file).is_absolute() else data_dir / file
    if not path.is_file():
        raise DataMissing(
            f"synthetic training images not found: looked for {path}; provide an .npz with the arrays 'image' "
            f"(uint8, {shape}) and 'label' (N) there, or name another in ddpm.file"
        )
    return path


@lru_cache
def _sha256_of(path: Path, size: int, modified: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _mapped_member(path: Path, name: str) -> np.ndarray:
    """Return an array of the .npz, memory-mapped; a compressed one is unpacked first."""
    with zipfile.ZipFile(path) as archive:
        if f"{name}.npy" not in archive.namelist():
            raise DataMissing(f"{path} has no array {name!r}; it holds {', '.join(archive.namelist()) or 'nothing'}")
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            return np.load(_decompressed(path, archive, name), mmap_mode="r", allow_pickle=False)
        with archive.open(member) as stream:
            shape, fortran, dtype = array_header(path, stream)
            header_bytes = stream.tell()
    with path.open("rb") as raw:
        raw.seek(member.header_offset + 26)
        name_bytes, extra_bytes = np.frombuffer(raw.read(4), "<u2")
    start = member.header_offset + 30 + int(name_bytes) + int(extra_bytes) + header_bytes
    return np.memmap(path, dtype=dtype, mode="r", offset=start, shape=shape, order="F" if fortran else "C")


def _decompressed(path: Path, archive: zipfile.ZipFile, name: str) -> Path:
    """Unpack a compressed array beside the file, in pieces, because it cannot be memory-mapped. Return its path."""
    unpacked = path.with_name(f"{path.stem}.{name}.npy")
    if unpacked.exists() and unpacked.stat().st_mtime >= path.stat().st_mtime:
        return unpacked
    temporary = unpacked.with_name(f"{unpacked.name}.{os.getpid()}.part")
    try:
        with archive.open(f"{name}.npy") as source, temporary.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        temporary.replace(unpacked)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DataMissing(
            f"{path} is compressed and cannot be memory-mapped, and unpacking it to {unpacked} failed ({error}); "
            "save it with numpy.savez instead, or make the folder writable"
        ) from None
    return unpacked
