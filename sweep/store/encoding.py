"""The encoding of records: canonical JSON that contains the SHA-256 of its own content."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from sweep.errors import UserError

_KEY = b'"sha256":"'
# How a user recovers from a broken record, by the folder it is in.
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
    """A stored file that is invalid: truncated, edited, or at the wrong path."""

    def __init__(self, path: str, reason: str) -> None:
        way_out = _WAYS_OUT.get(path.partition("/")[0])
        super().__init__(f"broken record {path}: {reason}{f'; {way_out}' if way_out else ''}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type[BrokenRecord], tuple[str, str]]:
        """Support pickling from worker to driver: by default an exception is rebuilt from its message alone."""
        return type(self), (self.path, self.reason)


class NewerRecord(BrokenRecord):
    """A record written by a later version. It is valid, and it is never replaced."""


def encode(record: Mapping[str, Any]) -> bytes:
    return _dump({**record, "sha256": hashlib.sha256(_dump(record)).hexdigest()})


def decode(path: str, data: bytes) -> dict[str, Any]:
    """Verify the checksum and return the record without it. Raise BrokenRecord if the data is invalid."""
    try:
        record = from_json(data, allow_inf_nan=False)  # several times faster than json's parser
    except ValueError as fault:
        raise BrokenRecord(path, f"not JSON ({fault})") from None
    if not isinstance(record, dict) or not isinstance(record.get("sha256"), str):
        raise BrokenRecord(path, "no checksum")
    expected = record.pop("sha256")
    # A tool may have reformatted the file: compare the content, not its formatting.
    if not is_intact(data) and hashlib.sha256(_dump(record)).hexdigest() != expected:
        raise BrokenRecord(path, "its checksum does not match its content")
    return record


def is_intact(data: bytes) -> bool:
    """Return whether the data is a record exactly as it was written. No JSON is parsed."""
    place = data.rfind(_KEY)  # the last one: checksums of weights come before it
    if place < 0:
        return False
    start, view = place + len(_KEY), memoryview(data)  # avoids copying megabytes
    expected, end = data[start : start + 64], start + 65
    # Drop one comma with the key: the one before it, or the one after it if it is the first key.
    if data.endswith(b",", 0, place):
        place -= 1
    elif data.startswith(b",", end):
        end += 1
    found = hashlib.sha256(view[:place])
    found.update(view[end:])
    return found.hexdigest().encode() == expected


def canonical(value: Any) -> Any:
    """Convert to plain JSON values with floats at 12 significant digits, so 0.6000000000000001 equals 0.6."""
    if value is None or isinstance(value, (str, int)):  # not str | int, which is built on every call
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
    """Replace values that JSON lacks: NaN (the loss of a collapsed trial) by null, infinity by the string "inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
