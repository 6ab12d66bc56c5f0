"""The store: files by path, written whole or not at all, and the records in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sweep.store import layout
from sweep.store.encoding import BrokenRecord, NewerRecord, is_intact
from sweep.store.records import (
    FORMAT,
    RECORD_TYPES,
    CandidateRecord,
    DiagnosticsRecord,
    EvaluationRecord,
    Manifest,
    Record,
    SearchRecord,
    TrialRecord,
)

AnyRecord = TypeVar("AnyRecord", bound=Record)
Skip = Callable[[BrokenRecord], None]


@dataclass(frozen=True)
class Entry:
    path: str
    size: int
    modified: float


class Store:
    """Paths are relative, with forward slashes. A write is seen whole or not at all."""

    uri: str

    # Files

    def read(self, path: str) -> bytes:
        """The bytes; FileNotFoundError when absent."""
        raise NotImplementedError

    def write(self, path: str, data: bytes) -> None:
        raise NotImplementedError

    def create(self, path: str, data: bytes) -> bool:
        """Write unless the path exists, decided atomically among all writers; False when it exists."""
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        raise NotImplementedError

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Everything below a folder, unordered."""
        raise NotImplementedError

    def delete(self, path: str) -> None:
        """Absent is fine."""
        raise NotImplementedError

    def local(self, path: str) -> Path | None:
        """The real path in a folder store; None elsewhere."""
        raise NotImplementedError

    def push_file(self, source: Path, path: str) -> None:
        """Copy a local file into the store, atomically."""
        raise NotImplementedError

    def fetch_file(self, path: str, target: Path) -> None:
        raise NotImplementedError

    def paths(self, prefix: str = "") -> list[str]:
        return sorted(entry.path for entry in self.entries(prefix))

    def fetch_folder(self, prefix: str, target: Path) -> list[Path]:
        """Copy everything below `prefix` into a local folder."""
        fetched = []
        for path in self.paths(prefix):
            destination = target / path[len(prefix.rstrip("/")) + 1 :]
            destination.parent.mkdir(parents=True, exist_ok=True)
            self.fetch_file(path, destination)
            fetched.append(destination)
        return fetched

    def read_many(self, paths: Iterable[str], skip: Skip | None = None) -> Iterator[tuple[str, bytes]]:
        """What exists of these paths, in order; a remote store reads several at once.

        A file that is there and cannot be read is given to `skip`, or the error is raised when there is none.
        """
        for path in paths:
            try:
                data = self.read(path)
            except FileNotFoundError:
                continue
            except OSError as fault:
                if skip is None:
                    raise
                skip(BrokenRecord(path, fault.strerror or str(fault)))
                continue
            yield path, data

    # Records

    def record(self, kind: type[AnyRecord], path: str) -> AnyRecord:
        """FileNotFoundError when absent, BrokenRecord when it cannot be trusted."""
        return kind.decoded(path, self.read(path))

    def write_record(self, record: Record) -> None:
        self.write(record.path, record.encoded())

    def records(self, kind: type[AnyRecord], paths: Iterable[str], skip: Skip | None = None) -> Iterator[AnyRecord]:
        """Those that are there, in order; a broken one is given to `skip`, or raised when there is none."""
        for path, data in self.read_many(paths, skip):
            try:
                yield kind.decoded(path, data)
            except BrokenRecord as fault:
                if skip is None:
                    raise
                skip(fault)

    def record_paths(self, kind: type[Record], prefix: str = "") -> list[str]:
        """All places below a folder at which a record of this kind stands."""
        return [path for path in self.paths(prefix or _FOLDERS[kind]) if layout.kind_at(path) == kind.kind]

    def trial_record(self, trial: str) -> TrialRecord | None:
        return self._maybe(TrialRecord, layout.trial_record(trial))

    def search_record(self, search: str) -> SearchRecord | None:
        return self._maybe(SearchRecord, layout.search_record(search))

    def candidate_record(self, search: str, trial: str) -> CandidateRecord | None:
        return self._maybe(CandidateRecord, layout.candidate_record(search, trial))

    def manifest(self, study: str) -> Manifest | None:
        return self._maybe(Manifest, layout.manifest(study))

    def manifests(self, skip: Skip | None = None) -> dict[str, Manifest]:
        found = self.records(Manifest, self.record_paths(Manifest), skip)
        return {manifest.name: manifest for manifest in found}

    def trial_states(self) -> dict[str, str]:
        """Folder name of every recorded trial -> done, failed, collapsed or broken.

        A record whose bytes are as they were written is not parsed: of thousands of trials that would take minutes.
        """
        states = {}
        header = f'"format":{FORMAT},"kind":"trial"'.encode()
        for path, data in self.read_many(self.record_paths(TrialRecord)):
            name = path.split("/")[1]
            untouched = is_intact(data) and header in data and f'"trial":"{name}'.encode() in data
            states[name] = "done" if untouched and b'"status":"done"' in data else _state(path, data)
        return states

    def broken_records(self) -> Iterator[BrokenRecord]:
        """Of everything that counts as done, what cannot be trusted; found by a look at every record."""
        for kind in (EvaluationRecord, DiagnosticsRecord, SearchRecord, CandidateRecord, TrialRecord, Manifest):
            for path, data in self.read_many(self.record_paths(kind)):
                fault = fault_of(path, data)
                if fault is not None:
                    yield fault

    def set_aside(self, path: str) -> str:
        """Move what cannot be trusted out of the way, so that it counts as missing; returns where it is now."""
        number = 1 + sum(entry.path.startswith(f"{layout.BROKEN}/{path}.") for entry in self.entries(layout.BROKEN))
        place = f"{layout.BROKEN}/{path}.{number}"
        self.write(place, self.read(path))
        self.delete(path)
        return place

    def usable(self, kind: type[AnyRecord], path: str) -> AnyRecord | None:
        """None where it is absent or broken: it is to be made, and written over what is there.

        A later version's record is never written over: NewerRecord.
        """
        try:
            return self.record(kind, path)
        except NewerRecord:
            raise
        except (FileNotFoundError, BrokenRecord):
            return None

    def _maybe(self, kind: type[AnyRecord], path: str) -> AnyRecord | None:
        try:
            return self.record(kind, path)
        except FileNotFoundError:
            return None


_FOLDERS: dict[type[Record], str] = {
    TrialRecord: layout.TRIALS,
    EvaluationRecord: layout.EVALUATIONS,
    DiagnosticsRecord: layout.DIAGNOSTICS,
    SearchRecord: layout.SEARCHES,
    CandidateRecord: layout.SEARCHES,
    Manifest: layout.STUDIES,
}


def fault_of(path: str, data: bytes) -> BrokenRecord | None:
    """What keeps the bytes at this path from being the record that belongs there; a later version's is no fault."""
    kind = layout.kind_at(path)
    try:
        RECORD_TYPES[kind or ""].decoded(path, data)
    except NewerRecord:
        return None
    except BrokenRecord as fault:
        return fault
    return None


def _state(path: str, data: bytes) -> str:
    try:
        return TrialRecord.decoded(path, data).status
    except NewerRecord:
        return "done"
    except BrokenRecord:
        return "broken"
