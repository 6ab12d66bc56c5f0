"""A Parquet cache beside the report for rows of records that were read before. Safe to delete at any time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from reports.store.rows import FrameRow
from sweep.store.base import Entry, Store
from sweep.store.encoding import BrokenRecord
from sweep.store.files import replacing
from sweep.store.records.record import Record

AnyRecord = TypeVar("AnyRecord", bound=Record)
Columns = dict[str, list[Any]]
NESTED = "json:"  # prefix of columns whose values are mappings or lists
# Raise this when the content of rows changes.
VERSION = "3"


class RowCache:
    """Cached rows of records. A row is valid while size and time of its record are unchanged."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def columns(
        self,
        store: Store,
        kind: type[AnyRecord],
        entries: Sequence[Entry],
        row: Callable[[AnyRecord], FrameRow],
        skip: Callable[[BrokenRecord], None],
    ) -> Columns:
        """Return the columns of one row per entry, in order. Broken records are passed to `skip` and left out."""
        stamps, columns = self._load(store, kind.kind)
        if stamps == entries:  # the usual case: no row needs to be rebuilt
            return columns
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        cached = dict(zip(stamps, rows, strict=True))
        by_path = {entry.path: cached[entry] for entry in entries if entry in cached}
        fresh = [entry.path for entry in entries if entry.path not in by_path]
        by_path |= {record.path: row(record) for record in store.records(kind, fresh, skip)}
        valid = [entry for entry in entries if entry.path in by_path]
        in_order = [by_path[entry.path] for entry in valid]
        if fresh or len(cached) != len(valid):
            self._save(store, kind.kind, valid, in_order)
        return {name: [values[name] for values in in_order] for name in in_order[0]} if in_order else {}

    def _load(self, store: Store, kind: str) -> tuple[list[tuple[str, int, float]], Columns]:
        """Return the stamps of the cached records and the columns of their rows; nothing if the file cannot be used."""
        if self.folder is None:
            return [], {}
        try:
            # pq.read_table would first load pyarrow's support for folders of files.
            with pq.ParquetFile(self._file(kind), pre_buffer=False, page_checksum_verification=True) as file:
                table = file.read()
            if (table.schema.metadata or {}) != _facts(store, table):
                return [], {}
            columns = {name: table.column(name).to_pylist() for name in table.column_names}
            stamps = list(zip(*(columns.pop(name) for name in ("of", "size", "modified")), strict=True))
            parsed = (_parsed(column) if name.startswith(NESTED) else column for name, column in columns.items())
            return stamps, {name.removeprefix(NESTED): column for name, column in zip(columns, parsed, strict=True)}
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return [], {}  # missing or damaged: read the records again

    def _save(self, store: Store, kind: str, entries: Sequence[Entry], rows: Sequence[FrameRow]) -> None:
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
        with contextlib.suppress(OSError):  # no space or permission: the next report reads the records again
            self.folder.mkdir(parents=True, exist_ok=True)
            table = pa.table(columns)
            # Checksums keep a flipped bit from becoming another number.
            table = table.replace_schema_metadata(_facts(store, table))
            with replacing(self._file(kind)) as stream:
                pq.write_table(table, stream, write_page_checksum=True)

    def _file(self, kind: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{kind}.parquet"


def _facts(store: Store, table: pa.Table) -> dict[bytes, bytes]:
    """Return the metadata of the file, with its columns, which the checksums of its pages do not cover."""
    columns = table.schema.remove_metadata().to_string()
    return {b"store": store.uri.encode(), b"version": VERSION.encode(), b"columns": columns.encode()}


def _parsed(texts: list[str]) -> list[Any]:
    """Parse JSON texts. Equal texts share one value: a large store has a few dozen attacks."""
    values = {text: json.loads(text) for text in set(texts)}
    return [values[text] for text in texts]
