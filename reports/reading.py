"""One stored file becomes one row of a frame, or a problem. Large stores are read by two processes."""

from __future__ import annotations

import base64
import binascii
import marshal
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from pydantic_core import from_json

from sweep.records import BrokenRecord, decode, is_intact
from sweep.store import Store

Record = dict[str, Any]
FORMAT = 1
# Below this, starting a process costs more than it saves.
MANY = 5_000


@dataclass(frozen=True)
class Problem:
    """A record that was left out, and why."""

    path: str
    reason: str


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

    return _row(path, data, "trial", build)


def evaluation_row(path: str, data: bytes) -> Record | Problem:
    """`packed` holds the verdicts as bytes; the rest are the columns of the frame."""

    def build(record: Record) -> Record:
        _, trial, checkpoint, name = path.split("/")
        if not str(record["trial"]).startswith(trial) or record["checkpoint"] != checkpoint:
            raise ValueError(f"belongs to {str(record['trial'])[:16]}/{record['checkpoint']}")
        images = int(record["images"])
        accuracy = float(record["accuracy"])
        packed, survivors = _counted(record["verdicts"], images)
        if abs(survivors / images - accuracy) > 0.5 / images:
            raise ValueError(f"accuracy {accuracy} is not that of its verdicts, {survivors / images:.6g}")
        attack = record["attack"]
        phases = record.get("phases") or {}
        return {
            "trial": trial,
            "checkpoint": checkpoint,
            "attack_id": name.removesuffix(".json"),
            "attack": str(attack["name"]),
            "epsilon": str(attack.get("epsilon", "")),
            "settings": attack,
            "images": images,
            "accuracy": survivors / images,
            "clean_accuracy": _counted(record["clean"], images)[1] / images if record.get("clean") else None,
            "warnings": tuple(str(warning) for warning in record.get("warnings") or ()),
            "phases": {phase: _counted(bits, images)[1] / images for phase, bits in phases.items()},
            "path": path,
            "packed": packed,
        }

    return _row(path, data, "evaluation", build)


def read_record(store: Store, path: str, kind: str) -> Record | Problem:
    try:
        data = store.read(path)
    except OSError as fault:
        return Problem(path, str(fault))
    return _row(path, data, kind, lambda record: record)


def read_rows(store: Store, paths: Sequence[str], kind: str) -> Iterator[Record | Problem]:
    """The rows of these files, in order; a file that has gone meanwhile is skipped."""
    folder = store.local("")
    if len(paths) < MANY or folder is None or (os.cpu_count() or 1) < 2:
        row = ROWS[kind]
        for path, data in store.read_many(paths):
            yield row(path, data)
        return
    middle = len(paths) // 2
    second = _start_reader(folder, paths[middle:], kind)
    yield from _read_here(str(folder), paths[:middle], kind)
    yield from _rows_of(second)


def _read_here(folder: str, paths: Sequence[str], kind: str) -> Iterator[Record | Problem]:
    row = ROWS[kind]
    for path in paths:
        try:
            with open(f"{folder}/{path}", "rb", buffering=0) as file:
                data = file.read()
        except FileNotFoundError:
            continue
        yield row(path, data)


def _start_reader(folder: Path, paths: Sequence[str], kind: str) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """A second process reads the second half. multiprocessing is not used: its workers run the caller's main module
    again, or fork it with all its threads."""
    package = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))}
    asked, answer = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    marshal.dump((str(folder), kind, list(paths)), asked)
    asked.seek(0)
    command = [sys.executable, "-m", "reports.reading"]
    process = subprocess.Popen(command, stdin=asked, stdout=answer, env=environment)
    asked.close()
    return process, answer


def _rows_of(reader: tuple[subprocess.Popen[bytes], IO[bytes]]) -> Iterator[Record | Problem]:
    process, answer = reader
    if process.wait():
        raise RuntimeError(f"the process that reads records ended with code {process.returncode}")
    answer.seek(0)
    with answer:
        for row in marshal.load(answer):
            yield Problem(*row) if isinstance(row, tuple) else row


def main() -> None:
    """Rows of the files named on standard input, to standard output; both in marshal's form, from and to ourselves."""
    folder, kind, paths = marshal.load(sys.stdin.buffer)
    rows = _read_here(folder, paths, kind)
    plain = [(row.path, row.reason) if isinstance(row, Problem) else row for row in rows]
    marshal.dump(plain, sys.stdout.buffer)


def _row(path: str, data: bytes, kind: str, build: Callable[[Record], Record]) -> Record | Problem:
    """A record of the right kind may still lack a key or hold nonsense; that is a problem, not a crash."""
    try:
        # Bytes exactly as written are JSON for certain, and this parser is several times faster than json's.
        record = from_json(data, cache_strings="keys") if is_intact(data) else decode(path, data)
    except BrokenRecord as fault:
        return Problem(path, fault.reason)
    if not isinstance(record, dict) or record.get("kind") != kind:
        return Problem(path, f"foreign: not a record of kind '{kind}'")
    if record.get("format", FORMAT) != FORMAT:
        return Problem(path, f"foreign: format {record['format']!r}, this version reads {FORMAT}")
    try:
        return build(record)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, binascii.Error) as fault:
        return Problem(path, f"broken: {type(fault).__name__}: {fault}")


# All attacks on one model hold the same clean verdicts.
@lru_cache(maxsize=64)
def _counted(text: str, images: int) -> tuple[bytes, int]:
    packed = base64.b64decode(text, validate=True)
    if images < 1 or len(packed) != (images + 7) // 8:
        raise ValueError(f"{len(packed)} bytes of verdicts for {images} images")
    # np.packbits pads with zeros, so counting the bits of the bytes counts the images.
    return packed, int.from_bytes(packed, "big").bit_count()


ROWS: dict[str, Callable[[str, bytes], Record | Problem]] = {"trial": trial_row, "evaluation": evaluation_row}

if __name__ == "__main__":
    main()
