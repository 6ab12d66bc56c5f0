"""How a record becomes bytes: canonical JSON that carries the SHA-256 of its own content."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from sweep.errors import UserError

_KEY = b'"sha256":"'
# What a user does about a broken record, by the folder that it is in.
_WAYS_OUT = {
    "studies": "running the study again writes it anew",
    "trials": "running the study again trains it again",
    "evaluations": "running the study again computes it again",
    "diagnostics": "running the study again computes it again",
    "searches": "delete this file and run the study again: what its candidates reached is kept in their own records",
}


class BrokenRecord(UserError):
    """A stored file that cannot be trusted: cut off, edited, or not what its place says."""

    def __init__(self, path: str, reason: str) -> None:
        way_out = _WAYS_OUT.get(path.partition("/")[0])
        super().__init__(f"broken record {path}: {reason}{f'; {way_out}' if way_out else ''}")
        self.path = path
        self.reason = reason


def encode(record: dict[str, Any]) -> bytes:
    rest = {key: value for key, value in record.items() if key != "sha256"}
    return _dump({**rest, "sha256": hashlib.sha256(_dump(rest)).hexdigest()})


def decode(path: str, data: bytes) -> dict[str, Any]:
    try:
        record = json.loads(data)
    except ValueError as fault:
        raise BrokenRecord(path, f"not JSON ({fault})") from None
    except RecursionError:
        raise BrokenRecord(path, "nested too deeply") from None
    if not isinstance(record, dict) or not isinstance(record.get("sha256"), str):
        raise BrokenRecord(path, "no checksum")
    if not _untouched(data, data.find(_KEY + record["sha256"].encode() + b'"'), record["sha256"]):
        # Reformatted by some tool, perhaps: the content counts, not its spelling.
        rest = {key: value for key, value in record.items() if key != "sha256"}
        if hashlib.sha256(_dump(rest)).hexdigest() != record["sha256"]:
            raise BrokenRecord(path, "its checksum does not match its content")
    return record


def is_intact(data: bytes) -> bool:
    """Whether the bytes are a record exactly as it was written; no JSON is parsed for it."""
    place = data.rfind(_KEY)
    start = place + len(_KEY)
    return _untouched(data, place, data[start : start + 64].decode("ascii", errors="replace"))


def _untouched(data: bytes, place: int, expected: str) -> bool:
    """Whether the bytes, with their checksum at this place, are exactly as written: nothing is dumped for it."""
    end = place + len(_KEY) + len(expected)
    if place < 0 or data[end : end + 1] != b'"':
        return False
    # One comma goes with the key: the one after it, or the one before when it is the last key.
    first = data[end + 1 : end + 2] == b","
    last = not first and data[place - 1 : place] == b","
    view = memoryview(data)
    found = hashlib.sha256(view[: place - last])
    found.update(view[end + 1 + first :])
    return found.hexdigest() == expected


def _dump(value: Any) -> bytes:
    try:
        return _text(value)
    except ValueError:
        return _text(_plain(value))


def _text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _plain(value: Any) -> Any:
    """JSON knows no NaN (a collapsed trial's loss becomes null) and no infinity (a hyperparameter becomes "inf")."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
