"""Counterexamples as bytes: the adversarial images that fooled a model. Loads no torch.

The file is an .npz that numpy alone can read. We read it as untrusted input: no code runs, nothing is unpacked before
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
MOST_BYTES = 2**31  # limit on an unpacked file if the size of an image is unknown
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
    """Bytes that are not a valid file of counterexamples, or belong to another evaluation."""


@dataclass(frozen=True)
class Counterexamples:
    """One row for each stored image; `indices` are its positions among the evaluation's images, in increasing order.

    `levels` says how a row is stored: 1 as signs, 2 to 127 as integer multiples of its scale (both are added to the
    clean image and clipped to [0, 1]), 0 as the image itself. `margins` is by how much the most likely wrong class
    exceeded the label when the stored row was decoded and shown to the model.
    """

    indices: np.ndarray
    levels: np.ndarray
    scales: np.ndarray
    margins: np.ndarray
    signs: np.ndarray  # packed bits, 1 for up: one row for each row of level 1
    offsets: np.ndarray  # one row for each row of levels 2 to 127
    images: np.ndarray  # one row for each row of level 0

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def values(self) -> int:
        """Return the number of values in one image, or 0 if there are no rows."""
        return self.offsets.shape[1]

    def encoded(self) -> bytes:
        """Return the content of the file."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {
            name: np.ascontiguousarray(getattr(self, name), dtype) for name, dtype in _DTYPES.items()
        }
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()

    def steps(self, rows: np.ndarray) -> np.ndarray:
        """Return multiples of the scale as int8, one line for each of these rows; zeros for rows stored as images."""
        steps = np.zeros((len(rows), self.values), np.int8)
        position, (signs, multiples, _) = self._positions()[rows], _kinds(self.levels[rows])
        steps[signs] = np.unpackbits(self.signs[position[signs]], axis=1, count=self.values).astype(np.int8) * 2 - 1
        steps[multiples] = self.offsets[position[multiples]]
        return steps

    def exact(self, rows: np.ndarray) -> np.ndarray:
        """Return the images of rows that are stored as images."""
        return self.images[self._positions()[rows]]

    def at(self, positions: np.ndarray) -> Counterexamples:
        """Return the same rows with new indices: row i gets `positions[i]`."""
        return joined([Counterexamples(**{**vars(self), "indices": np.asarray(positions, np.uint32)})])

    def _positions(self) -> np.ndarray:
        """Return the position of each row within the array that holds it."""
        positions = np.zeros(len(self), np.int64)
        for kind in _kinds(self.levels):
            positions[kind] = np.arange(kind.sum())
        return positions


def _kinds(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three masks: rows stored as signs, as multiples and as images."""
    return levels == SIGNS, levels > SIGNS, levels == EXACT


def none(values: int = 0) -> Counterexamples:
    """Return no rows, for images of so many values."""
    widths = {"signs": (values + 7) // 8, "offsets": values, "images": values}
    arrays = {name: np.zeros((0, widths[name]) if name in widths else 0, dtype) for name, dtype in _DTYPES.items()}
    return Counterexamples(**arrays)


def joined(parts: Iterable[Counterexamples]) -> Counterexamples:
    """Return all rows of several collections, ordered by index."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return none()
    together = {name: np.concatenate([getattr(part, name) for part in filled]) for name in _DTYPES}
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
    """Return the counterexamples in a file's content. Raise BrokenCounterexamples, with the reason, if it is not valid.

    `images` is the number of images of the evaluation, `values` the number of values in one of them, if known.
    """
    most = MOST_BYTES if values is None else images * (5 * values + 64) + 4096
    rows = Counterexamples(**_arrays(data, most))
    count = len(rows.indices)
    for name, kind in zip(("signs", "offsets", "images"), _kinds(rows.levels), strict=True):
        if len(getattr(rows, name)) != kind.sum():
            raise BrokenCounterexamples(f"{name} has {len(getattr(rows, name))} rows instead of {kind.sum()}")
    width = rows.values
    if rows.images.shape[1] != width or rows.signs.shape[1] != (width + 7) // 8:
        raise BrokenCounterexamples("its images have different sizes")
    if any(len(getattr(rows, name)) != count for name in ("levels", "scales", "margins")):
        raise BrokenCounterexamples("its arrays have different lengths")
    if count and values is not None and width != values:
        raise BrokenCounterexamples(f"its images have {width} values, those of the data set {values}")
    if count and (int(rows.indices[-1]) >= images or (np.diff(rows.indices.astype(np.int64)) <= 0).any()):
        raise BrokenCounterexamples(f"its positions do not increase from 0 to {images - 1}")
    if (rows.levels > MOST_LEVELS).any() or (rows.offsets == -128).any():
        raise BrokenCounterexamples(f"it has offsets of more than {MOST_LEVELS} levels")
    if not all(np.isfinite(array).all() for array in (rows.scales, rows.margins, rows.images)):
        raise BrokenCounterexamples("it has values that are not finite")
    return rows


def _arrays(data: bytes, most: int) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename: info for info in archive.infolist()}
            if len(members) != len(archive.infolist()) or set(members) != {f"{name}.npy" for name in _DTYPES}:
                raise BrokenCounterexamples("it does not hold the arrays of counterexamples")
            if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in members.values()):
                raise BrokenCounterexamples("it uses an unsupported compression method")
            size = sum(info.file_size for info in members.values())
            if size > most:
                raise BrokenCounterexamples(f"it unpacks to {size} bytes, more than these images can have")
            # zipfile never reads a member beyond its declared size.
            return {name: _array(name, archive.read(members[f"{name}.npy"])) for name in _DTYPES}
    except _NO_ARCHIVE as fault:
        raise BrokenCounterexamples(f"it is not an archive of arrays ({fault})") from None


def _array(name: str, content: bytes) -> np.ndarray:
    """Return the array in an .npy file. The header is matched against the expected pattern and never evaluated."""
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
