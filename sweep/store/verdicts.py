"""Verdicts as text: base64 of packed bits."""

from __future__ import annotations

import base64

import numpy as np


def pack(verdicts: np.ndarray) -> str:
    return base64.b64encode(np.packbits(verdicts.astype(bool)).tobytes()).decode()


def unpack(text: str, count: int) -> np.ndarray:
    """The booleans behind base64 of np.packbits."""
    return np.unpackbits(packed(text, count), count=count).astype(bool)


def count_true(text: str, images: int) -> int:
    """How many of the verdicts are true; the padding of np.packbits is zero."""
    return int(np.bitwise_count(packed(text, images)).sum())


def packed(text: str, count: int) -> np.ndarray:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as fault:
        raise ValueError(f"verdicts that are not base64 ({fault})") from None
    if count < 1 or len(data) != (count + 7) // 8:
        raise ValueError(f"{len(data)} bytes of verdicts for {count} images")
    return np.frombuffer(data, np.uint8)
