"""Counterexamples as bytes: what an attack made of each image that it fooled. Loads no torch.

The file is an .npz that numpy alone can read. Here it is read without trust: no code runs, nothing is unpacked before
its size is known, and every type, shape and range is checked.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

SIGNS, EXACT = 1, 0
MOST_LEVELS = 127
MOST_BYTES = 2**31  # of a file that is unpacked, where the size of an image is not known
_DTYPES: dict[str, np.dtype] = {
    "indices": np.dtype("<u4"),
    "levels": np.dtype("u1"),
    "scales": np.dtype("<f4"),
    "margins": np.dtype("<f4"),
    "signs": np.dtype("u1"),
    "offsets": np.dtype("i1"),
    "images": np.dtype("<f4"),
}
_HEADER = re.compile(r"\{'descr': '([<|]\w\d)', 'fortran_order': False, 'shape': \((\d{1,9}),(?: (\d{1,9}))?\), \}\s*")
_NO_ARCHIVE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError, KeyError)


class BrokenCounterexamples(ValueError):
    """Bytes that are no file of counterexamples, or not one of this evaluation."""


@dataclass(frozen=True)
class Counterexamples:
    """A row for each image; `indices` are its positions among the evaluation's images, rising.

    How a row is kept is said by its `levels`: 1 as signs, 2 to 127 as whole multiples of its scale (both are added to
    the clean image and clipped to [0, 1]), 0 as the image itself. `margins` say by how much the likeliest wrong class
    exceeded the label when the row was read back and shown to the model.
    """

    indices: np.ndarray
    levels: np.ndarray
    scales: np.ndarray
    margins: np.ndarray
    signs: np.ndarray  # packed bits, 1 for up: one row for each of `levels` 1
    offsets: np.ndarray  # one row for each of `levels` 2 to 127
    images: np.ndarray  # one row for each of `levels` 0

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def values(self) -> int:
        """Of one image; 0 where there is none to tell it."""
        return self.offsets.shape[1]

    def encoded(self) -> bytes:
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {
            name: np.ascontiguousarray(getattr(self, name), dtype) for name, dtype in _DTYPES.items()
        }
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()

    def steps(self, rows: np.ndarray) -> np.ndarray:
        """Whole multiples of the scale, one row of int8 for each of these; zeros where the image itself is kept."""
        found = np.zeros((len(rows), self.values), np.int8)
        place, (signs, multiples, _) = self._places()[rows], _kinds(self.levels[rows])
        found[signs] = np.unpackbits(self.signs[place[signs]], axis=1, count=self.values).astype(np.int8) * 2 - 1
        found[multiples] = self.offsets[place[multiples]]
        return found

    def exact(self, rows: np.ndarray) -> np.ndarray:
        """The images themselves of rows that are kept so."""
        return self.images[self._places()[rows]]

    def at(self, positions: np.ndarray) -> Counterexamples:
        """The same rows for images that stand elsewhere: row i's becomes `positions[i]`."""
        return joined([Counterexamples(**{**vars(self), "indices": np.asarray(positions, np.uint32)})])

    def _places(self) -> np.ndarray:
        """The row within the array that keeps it."""
        place = np.zeros(len(self), np.int64)
        for kind in _kinds(self.levels):
            place[kind] = np.arange(kind.sum())
        return place


def _kinds(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return levels == SIGNS, levels > SIGNS, levels == EXACT


def none(values: int = 0) -> Counterexamples:
    widths = {"signs": (values + 7) // 8, "offsets": values, "images": values}
    arrays = {name: np.zeros((0, widths[name]) if name in widths else 0, dtype) for name, dtype in _DTYPES.items()}
    return Counterexamples(**arrays)


def joined(parts: Iterable[Counterexamples]) -> Counterexamples:
    """All rows of several, in the order of their images."""
    found = [part for part in parts if len(part)]
    if not found:
        return none()
    together = {name: np.concatenate([getattr(part, name) for part in found]) for name in _DTYPES}
    order = np.argsort(together["indices"], kind="stable")
    levels = together["levels"]
    for name, kind in zip(("signs", "offsets", "images"), _kinds(levels), strict=True):
        rank = np.zeros(len(levels), np.int64)
        rank[kind] = np.arange(kind.sum())
        together[name] = together[name][rank[order][kind[order]]]
    for name in ("indices", "levels", "scales", "margins"):
        together[name] = together[name][order]
    return Counterexamples(**together)


def decoded(data: bytes, images: int, values: int | None = None) -> Counterexamples:
    """Those in these bytes, for so many images of so many values each; BrokenCounterexamples says why they are none."""
    most = MOST_BYTES if values is None else images * (5 * values + 64) + 4096
    found = Counterexamples(**_arrays(data, most))
    count = len(found.indices)
    for name, kind in zip(("signs", "offsets", "images"), _kinds(found.levels), strict=True):
        if len(getattr(found, name)) != kind.sum():
            raise BrokenCounterexamples(f"{name} has {len(getattr(found, name))} rows instead of {kind.sum()}")
    width = found.values
    if found.images.shape[1] != width or found.signs.shape[1] != (width + 7) // 8:
        raise BrokenCounterexamples("its images have different sizes")
    if any(len(getattr(found, name)) != count for name in ("levels", "scales", "margins")):
        raise BrokenCounterexamples("its arrays have different lengths")
    if count and values is not None and width != values:
        raise BrokenCounterexamples(f"its images have {width} values, those of the data set {values}")
    if count and (int(found.indices[-1]) >= images or (np.diff(found.indices.astype(np.int64)) <= 0).any()):
        raise BrokenCounterexamples(f"its positions are not rising ones among {images} images")
    if (found.levels > MOST_LEVELS).any() or (found.offsets == -128).any():
        raise BrokenCounterexamples(f"it has offsets of more than {MOST_LEVELS} levels")
    if not all(np.isfinite(array).all() for array in (found.scales, found.margins, found.images)):
        raise BrokenCounterexamples("it has values that are not finite")
    return found


def _arrays(data: bytes, most: int) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename: info for info in archive.infolist()}
            if len(members) != len(archive.infolist()) or set(members) != {f"{name}.npy" for name in _DTYPES}:
                raise BrokenCounterexamples("it does not hold the arrays of counterexamples")
            if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in members.values()):
                raise BrokenCounterexamples("it is packed in an unusual way")
            size = sum(info.file_size for info in members.values())
            if size > most:
                raise BrokenCounterexamples(f"it unpacks to {size} bytes, more than these images can have")
            # A member that says it is small is never read beyond what it says.
            return {name: _array(name, archive.read(members[f"{name}.npy"])) for name in _DTYPES}
    except _NO_ARCHIVE as fault:
        raise BrokenCounterexamples(f"it is no archive of arrays ({fault})") from None


def _array(name: str, content: bytes) -> np.ndarray:
    """One .npy, its header compared with the few that are expected and never evaluated."""
    length = int.from_bytes(content[8:10], "little")
    header = _HEADER.fullmatch(content[10 : 10 + length].decode("latin-1"))
    dtype, dimensions = _DTYPES[name], 2 if name in ("signs", "offsets", "images") else 1
    if content[:8] != b"\x93NUMPY\x01\x00" or header is None or np.dtype(header[1]) != dtype:
        raise BrokenCounterexamples(f"{name} is not an array of {dtype.name}")
    shape = tuple(int(part) for part in header.groups()[1:] if part is not None)
    body = content[10 + length :]
    if len(shape) != dimensions or int(np.prod(shape, dtype=object)) * dtype.itemsize != len(body):
        raise BrokenCounterexamples(f"{name} has {len(body)} bytes for the shape {shape}")
    return np.frombuffer(body, dtype).reshape(shape)
