"""How a record becomes bytes: canonical JSON that carries the SHA-256 of its own content."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from sweep.errors import UserError

_KEY = b'"sha256":"'
# What a user does about a broken record, by the folder that it is in.
_WAYS_OUT = {
    "studies": "running the study again writes it anew",
    "trials": "running the study again trains it again",
    "evaluations": "running the study again computes it again",
    "diagnostics": "running the study again computes it again",
    "transfers": "sweep.transfer makes it again from the stored counterexamples",
    "decisions": "the same sweep.decide makes it again from the stored trials",
    "searches": "running the study again rebuilds it: what its candidates reached is kept in their own records",
}


class BrokenRecord(UserError):
    """A stored file that cannot be trusted: cut off, edited, or not what its place says."""

    def __init__(self, path: str, reason: str) -> None:
        way_out = _WAYS_OUT.get(path.partition("/")[0])
        super().__init__(f"broken record {path}: {reason}{f'; {way_out}' if way_out else ''}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type[BrokenRecord], tuple[str, str]]:
        """It travels from a worker to the driver: by itself an exception is made again from its message alone."""
        return type(self), (self.path, self.reason)


class NewerRecord(BrokenRecord):
    """Written by a later version: nothing is wrong with it, and it is never replaced."""


def encode(record: Mapping[str, Any]) -> bytes:
    return _dump({**record, "sha256": hashlib.sha256(_dump(record)).hexdigest()})


def decode(path: str, data: bytes) -> dict[str, Any]:
    """The record without its checksum, which was compared."""
    try:
        record = from_json(data, allow_inf_nan=False)  # several times faster than json's parser
    except ValueError as fault:
        raise BrokenRecord(path, f"not JSON ({fault})") from None
    if not isinstance(record, dict) or not isinstance(record.get("sha256"), str):
        raise BrokenRecord(path, "no checksum")
    expected = record.pop("sha256")
    # Reformatted by some tool, perhaps: then the content counts, not its spelling.
    if not is_intact(data) and hashlib.sha256(_dump(record)).hexdigest() != expected:
        raise BrokenRecord(path, "its checksum does not match its content")
    return record


def is_intact(data: bytes) -> bool:
    """Whether the bytes are a record exactly as it was written; no JSON is parsed for it."""
    place = data.rfind(_KEY)  # the last one: weights have checksums too, which stand before it
    if place < 0:
        return False
    start, view = place + len(_KEY), memoryview(data)  # of megabytes no copy is made
    expected, end = data[start : start + 64], start + 65
    # One comma goes with the key: the one before it, or the one after when it is the first key.
    if data.endswith(b",", 0, place):
        place -= 1
    elif data.startswith(b",", end):
        end += 1
    found = hashlib.sha256(view[:place])
    found.update(view[end:])
    return found.hexdigest().encode() == expected


def canonical(value: Any) -> Any:
    """Plain JSON values, floats rounded to 12 significant digits: 0.6000000000000001 and 0.6 are one value."""
    if value is None or isinstance(value, (str, int)):  # not str | int, which is made anew each time
        return value
    if isinstance(value, float):
        return repr(value) if not math.isfinite(value) else float(f"{value:.12g}")
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no canonical form")


def canonical_json(value: Any) -> str:
    return json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _dump(value: Any) -> bytes:
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def _plain(value: Any) -> Any:
    """JSON knows no NaN (a collapsed trial's loss becomes null) and no infinity (a hyperparameter becomes "inf")."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
