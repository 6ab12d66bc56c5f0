"""Verdicts as text: base64 of packed bits. Loads numpy only to make them or to read them image by image."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def pack(verdicts: np.ndarray) -> str:
    import numpy as np

    return base64.b64encode(np.packbits(verdicts.astype(bool)).tobytes()).decode()


def unpack(text: str, count: int) -> np.ndarray:
    """The booleans behind base64 of np.packbits."""
    import numpy as np

    return np.unpackbits(np.frombuffer(packed(text, count), np.uint8), count=count).astype(bool)


def count_true(text: str, images: int) -> int:
    """How many of the verdicts are true; the padding of np.packbits is zero."""
    return int.from_bytes(packed(text, images)).bit_count()


def packed(text: str, count: int) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as fault:
        raise ValueError(f"verdicts that are not base64 ({fault})") from None
    if count < 1 or len(data) != (count + 7) // 8:
        raise ValueError(f"{len(data)} bytes of verdicts for {count} images")
    return data
