"""Verdicts as text: base64 of packed bits; distances as base64 of float32. Imports numpy only where needed."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def pack(verdicts: np.ndarray) -> str:
    import numpy as np

    return base64.b64encode(np.packbits(verdicts.astype(bool)).tobytes()).decode()


def unpack(text: str, count: int) -> np.ndarray:
    """Return the `count` booleans that `pack` encoded."""
    import numpy as np

    return np.unpackbits(np.frombuffer(packed(text, count), np.uint8), count=count).astype(bool)


def count_true(text: str, images: int) -> int:
    """Return the number of true verdicts. The padding bits of np.packbits are zero."""
    return int.from_bytes(packed(text, images)).bit_count()


def packed(text: str, count: int) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as fault:
        raise ValueError(f"verdicts that are not base64 ({fault})") from None
    if count < 1 or len(data) != (count + 7) // 8:
        raise ValueError(f"{len(data)} bytes of verdicts for {count} images")
    return data


def pack_distances(distances: np.ndarray) -> str:
    return base64.b64encode(distances.astype("<f4").tobytes()).decode()


def unpack_distances(text: str, count: int) -> np.ndarray:
    """Return one distance per image, infinite where no counterexample was found. Raise ValueError if any is invalid."""
    import numpy as np

    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as fault:
        raise ValueError(f"distances that are not base64 ({fault})") from None
    if len(data) != 4 * count:
        raise ValueError(f"{len(data)} bytes of distances for {count} images")
    distances = np.frombuffer(data, "<f4")
    if not (distances >= 0).all():
        raise ValueError("a distance that is negative or no number")
    return distances
