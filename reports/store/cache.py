"""Rows of records that were read before, kept as Parquet beside the report. Safe to delete at any time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from reports.store.rows import Row
from sweep.store.base import Entry, Store
from sweep.store.encoding import BrokenRecord
from sweep.store.files import replacing
from sweep.store.records.record import Record

AnyRecord = TypeVar("AnyRecord", bound=Record)
Columns = dict[str, list[Any]]
NESTED = "json:"  # before the name of a column whose values are mappings or lists
# Raised when a row holds something else than before.
VERSION = "3"


class RowCache:
    """A row is taken from here as long as its record's size and time are those of when it was read."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def columns(
        self,
        store: Store,
        kind: type[AnyRecord],
        entries: Sequence[Entry],
        row: Callable[[AnyRecord], Row],
        skip: Callable[[BrokenRecord], None],
    ) -> Columns:
        """The columns of one row per entry, in order; a broken record is given to `skip` and left out."""
        stamps, columns = self._load(store, kind.kind)
        if stamps == entries:  # as nearly always: no row is taken apart
            return columns
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        known = dict(zip(stamps, rows, strict=True))
        found = {entry.path: known[entry] for entry in entries if entry in known}
        fresh = [entry.path for entry in entries if entry.path not in found]
        found |= {record.path: row(record) for record in store.records(kind, fresh, skip)}
        kept = [entry for entry in entries if entry.path in found]
        if fresh or len(known) != len(kept):
            self._save(store, kind.kind, kept, [found[entry.path] for entry in kept])
        return {name: [found[entry.path][name] for entry in kept] for name in found[kept[0].path]} if kept else {}

    def _load(self, store: Store, kind: str) -> tuple[list[tuple[str, int, float]], Columns]:
        """The stamps of the records and the columns of their rows."""
        if self.folder is None:
            return [], {}
        try:
            # Not pq.read_table, which loads pyarrow's machinery for folders of files first.
            with pq.ParquetFile(self._file(kind), pre_buffer=False, page_checksum_verification=True) as file:
                table = file.read()
            if (table.schema.metadata or {}) != _facts(store, table):
                return [], {}
            columns = {name: table.column(name).to_pylist() for name in table.column_names}
            stamps = list(zip(*(columns.pop(name) for name in ("of", "size", "modified")), strict=True))
            parsed = (_parsed(column) if name.startswith(NESTED) else column for name, column in columns.items())
            return stamps, {name.removeprefix(NESTED): column for name, column in zip(columns, parsed, strict=True)}
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return [], {}  # absent, or damaged: the records are read again

    def _save(self, store: Store, kind: str, entries: Sequence[Entry], rows: Sequence[Row]) -> None:
        if self.folder is None or not rows:
            return
        columns: dict[str, list[Any]] = {
            "of": [entry.path for entry in entries],
            "size": [entry.size for entry in entries],
            "modified": [entry.modified for entry in entries],
        }
        for name, first in rows[0].items():
            values = [row[name] for row in rows]
            if isinstance(first, dict | list):
                columns[NESTED + name] = [json.dumps(value, separators=(",", ":")) for value in values]
            else:
                columns[name] = values
        with contextlib.suppress(OSError):  # no space, no right to: the next report reads the records again
            self.folder.mkdir(parents=True, exist_ok=True)
            table = pa.table(columns)
            # A flipped bit must not become another number.
            table = table.replace_schema_metadata(_facts(store, table))
            with replacing(self._file(kind)) as stream:
                pq.write_table(table, stream, write_page_checksum=True)

    def _file(self, kind: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{kind}.parquet"


def _facts(store: Store, table: pa.Table) -> dict[bytes, bytes]:
    """What the file says of itself; its columns too, which the checksums of its pages do not cover."""
    columns = table.schema.remove_metadata().to_string()
    return {b"store": store.uri.encode(), b"version": VERSION.encode(), b"columns": columns.encode()}


def _parsed(texts: list[str]) -> list[Any]:
    """Equal texts become one value: a large store has a few dozen attacks."""
    known = {text: json.loads(text) for text in set(texts)}
    return [known[text] for text in texts]
