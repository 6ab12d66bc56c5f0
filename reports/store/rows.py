"""One stored file becomes one row of a frame, or a problem."""

from __future__ import annotations

import contextlib
import marshal
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any, TypeVar

import numpy as np
from pydantic_core import from_json

from sweep.store.encoding import BrokenRecord, decode, is_intact

Record = dict[str, Any]
# In the order of EVALUATION_COLUMNS, then the verdicts as stored.
EvaluationRow = tuple[Any, ...]
Row = TypeVar("Row")

FORMAT = 1
CURVE = b'"curve":['
EVALUATION_COLUMNS = [
    *("trial", "checkpoint", "attack_id", "attack", "epsilon", "settings", "images", "accuracy", "clean_accuracy"),
    *("warnings", "path"),
]
# Character -> how many of its six bits are set, or UNKNOWN to base64.
UNKNOWN = 255
ALPHABET = (string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode()
BITS = bytes(ALPHABET.index(one).bit_count() if one in ALPHABET else UNKNOWN for one in range(256))
_ATTACKS: dict[bytes, Record] = {}


@dataclass(frozen=True)
class Problem:
    """A record that was left out, and why."""

    path: str
    reason: str


def plain_record(path: str, data: bytes, kind: str) -> Record | Problem:
    return _row(path, data, kind, lambda record: record)


def trial_row(path: str, data: bytes) -> Record | Problem:
    def build(record: Record) -> Record:
        folder = path.split("/")[1]
        if not str(record["trial"]).startswith(folder):
            raise ValueError(f"belongs to trial {str(record['trial'])[:16]}")
        if record["status"] not in ("done", "collapsed", "failed"):
            raise ValueError(f"unknown status {record['status']!r}")
        kept = ("status", "reason", "config", "checkpoints", "metrics", "versions", "commit", "device", "wall_seconds")
        row = {key: record.get(key) for key in (*kept, "command", "log")}
        curve = record.get("curve") or []
        row["last_epoch"] = dict(curve[-1]) if curve else {}
        row["trial"] = folder
        return row

    return _row(path, data, "trial", build, parse_trial)


def parse_trial(data: bytes) -> Any:
    """The record without the early rows of its curve: they are nearly all of the file, and no frame holds them.

    They are cut out before parsing, as if all rows were flat. Where they are not, what is left is no JSON, and the
    record is parsed whole; so it is when the only curve, or a second one, stands elsewhere in the record.
    """
    start = data.find(CURVE) + len(CURVE)
    end = data.find(b"]", start)
    last = data.rfind(b"{", start, end)
    if last > start and data.find(CURVE, end) < 0:
        with contextlib.suppress(ValueError):
            record = parse(data[:start] + data[last:])
            if isinstance(record, dict) and isinstance(record.get("curve"), list):
                return record
    return parse(data)


def evaluation_row(path: str, data: bytes) -> EvaluationRow | Problem:
    def build(record: Record) -> EvaluationRow:
        _, trial, checkpoint, name = path.split("/")
        if not str(record["trial"]).startswith(trial) or record["checkpoint"] != checkpoint:
            raise ValueError(f"belongs to {str(record['trial'])[:16]}/{record['checkpoint']}")
        images = int(record["images"])
        accuracy = float(record["accuracy"])
        clean = [record["clean"]] if record.get("clean") else []
        survivors, *right = count_survivors([record["verdicts"], *clean], images)
        if abs(survivors / images - accuracy) > 0.5 / images:
            raise ValueError(f"accuracy {accuracy} is not that of its verdicts, {survivors / images:.6g}")
        attack = record["attack"]
        return (
            intern(trial),
            intern(checkpoint),
            intern(name.removesuffix(".json")),
            intern(str(attack["name"])),
            intern(str(attack.get("epsilon", ""))),
            _shared(attack),
            images,
            survivors / images,
            right[0] / images if right else None,
            tuple(map(str, record.get("warnings") or ())),
            path,
            record["verdicts"],
        )

    return _row(path, data, "evaluation", build)


def count_survivors(texts: Sequence[str], images: int) -> list[int]:
    """How many images each of these verdicts (base64 of np.packbits) holds true.

    Counted on the text, six bits a character, all texts at once: a large store has hundreds of thousands of them, and
    decoding takes five times as long.
    """
    size = (images + 7) // 8
    padding = -size % 3
    bodies = [text.rstrip("=") for text in texts]
    length = (8 * size + 5) // 6
    for text, body in zip(texts, bodies, strict=True):
        if images < 1 or len(body) != length or len(text) != length + padding:
            raise ValueError(f"{len(text)} characters of verdicts for {images} images")
    bits = "".join(bodies).encode().translate(BITS)
    if UNKNOWN in bits:
        raise ValueError("verdicts that are not base64")
    table = np.frombuffer(bits, dtype=np.uint8).reshape(len(texts), length)
    counts: list[int] = table.sum(axis=1, dtype=np.uint32).tolist()
    return counts


def _shared(attack: Record) -> Record:
    """One dictionary for all evaluations with the same attack: a large store has a few dozen attacks."""
    return _ATTACKS.setdefault(marshal.dumps(attack), attack)


def parse(data: bytes) -> Any:
    """Several times faster than json's parser."""
    return from_json(data, cache_strings="keys")


def _row(
    path: str,
    data: bytes,
    kind: str,
    build: Callable[[Record], Row],
    parse_intact: Callable[[bytes], Any] = parse,
) -> Row | Problem:
    """A record of the right kind may still lack a key or hold nonsense; that is a problem, not a crash."""
    try:
        # Bytes exactly as written are JSON for certain; others are judged by their content.
        record = parse_intact(data) if is_intact(data) else decode(path, data)
    except BrokenRecord as fault:
        return Problem(path, fault.reason)
    if not isinstance(record, dict) or record.get("kind") != kind:
        return Problem(path, f"foreign: not a record of kind '{kind}'")
    if record.get("format", FORMAT) != FORMAT:
        return Problem(path, f"foreign: format {record['format']!r}, this version reads {FORMAT}")
    try:
        return build(record)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as fault:
        return Problem(path, f"broken: {type(fault).__name__}: {fault}")
