"""The store interface: files addressed by path, written atomically, and the records in them."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from sweep.errors import UserError
from sweep.store import layout
from sweep.store.encoding import BrokenRecord, NewerRecord, is_intact
from sweep.store.records.decision import DecisionRecord
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.kinds import RECORD_TYPES
from sweep.store.records.manifest import Manifest
from sweep.store.records.record import FORMAT, Record
from sweep.store.records.row import RowRecord
from sweep.store.records.search import CandidateRecord, SearchRecord
from sweep.store.records.transfer import TransferRecord
from sweep.store.records.trial import TrialRecord

AnyRecord = TypeVar("AnyRecord", bound=Record)
Skip = Callable[[BrokenRecord], None]
ABSENT = "absent"


class Entry(NamedTuple):
    path: str
    size: int
    modified: float


class TrialLook(NamedTuple):
    """A summary of a recorded trial, read without parsing its whole record."""

    state: str  # done, failed, collapsed or broken
    clean_accuracy: float | None = None  # measured in training; only set if the trial is done
    numerics: int = 1


class Store:
    """A collection of files and records. Paths are relative, with forward slashes. Writes are atomic."""

    uri: str

    @property
    def impatient(self) -> Store:
        """Return the underlying store, which raises at once instead of waiting for an unavailable service."""
        return self

    # Files

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raise FileNotFoundError if it is missing."""
        raise NotImplementedError

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Replace a file atomically. Pass `durable=False` for notes that need not survive a crash of the machine."""
        raise NotImplementedError

    def create(self, path: str, data: bytes) -> bool:
        """Write a file unless the path exists, atomically among all writers. Return False if it exists."""
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        raise NotImplementedError

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Yield all files below a folder, in no particular order."""
        raise NotImplementedError

    def delete(self, path: str) -> None:
        """Delete a file. A missing file is not an error."""
        raise NotImplementedError

    def local(self, path: str) -> Path | None:
        """Return the path on disk of a file in a folder store; None for other stores."""
        raise NotImplementedError

    def push_file(self, source: Path, path: str) -> None:
        """Copy a local file into the store, atomically."""
        raise NotImplementedError

    def fetch_file(self, path: str, target: Path) -> None:
        raise NotImplementedError

    def file_fault(self, path: str, sha256: str | None) -> str | None:
        """Return why a file does not match its record (ABSENT if it is missing), or None if it does.

        Older records hold no checksum for some files. Any such file that can be read is accepted.
        """
        place = self.local(path)
        try:
            if place is None:
                found = hashlib.sha256(self.read(path)).hexdigest()
            else:
                with place.open("rb") as file:  # in chunks: weights may be larger than the memory
                    found = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return ABSENT
        except OSError as fault:
            if isinstance(fault, UserError):  # the whole store is unreadable
                raise
            return fault.strerror or str(fault)
        return None if sha256 in (None, found) else "not the file that was written"

    def paths(self, prefix: str = "") -> list[str]:
        return sorted(entry.path for entry in self.entries(prefix))

    def fetch_folder(self, prefix: str, target: Path) -> list[Path]:
        """Copy all files below `prefix` into a local folder and return their local paths."""
        fetched = []
        for path in self.paths(prefix):
            destination = target / path[len(prefix.rstrip("/")) + 1 :]
            destination.parent.mkdir(parents=True, exist_ok=True)
            self.fetch_file(path, destination)
            fetched.append(destination)
        return fetched

    def read_many(self, paths: Iterable[str], skip: Skip | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of those files that exist, in order. Remote stores read several at once.

        Pass an existing file that cannot be read to `skip`, or raise the error if there is no `skip`.
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
        """Load a record. Raise FileNotFoundError if it is missing and BrokenRecord if it is invalid."""
        return kind.decoded(path, self.read(path))

    def write_record(self, record: Record) -> None:
        self.write(record.path, record.encoded())

    def records(self, kind: type[AnyRecord], paths: Iterable[str], skip: Skip | None = None) -> Iterator[AnyRecord]:
        """Yield the records that exist, in order. Pass a broken one to `skip`, or raise it if there is no `skip`."""
        for path, data in self.read_many(paths, skip):
            try:
                yield kind.decoded(path, data)
            except BrokenRecord as fault:
                if skip is None:
                    raise
                skip(fault)

    def record_paths(self, kind: type[Record], prefix: str = "") -> list[str]:
        """Return the paths of all records of one kind below a folder."""
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
        """Return the state (done, failed, collapsed or broken) of every recorded trial, by folder name."""
        return {name: state for name, state, _ in self._recorded_trials()}

    def trial_looks(self) -> dict[str, TrialLook]:
        """Return a summary of every recorded trial, by folder name."""
        looks: dict[str, TrialLook] = {}
        for name, state, data in self._recorded_trials():
            found = METRICS.search(data)
            clean = _clean_accuracy(found[1]) if found and state == "done" else None
            looks[name] = TrialLook(state, clean, int(found[2]) if found else 1)
        return looks

    def _recorded_trials(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield folder name, state and encoded record of every trial.

        Intact records of finished trials are not parsed: parsing thousands of them would take minutes.
        """
        header = f'"format":{FORMAT},"kind":"trial"'.encode()
        for path, data in self._trial_files():
            name = path.split("/")[1]
            untouched = is_intact(data) and header in data and f'"trial":"{name}'.encode() in data
            yield name, "done" if untouched and b'"status":"done"' in data else _state(path, data), data

    def _trial_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of every trial record."""
        return self.read_many(self.record_paths(TrialRecord))

    def broken_records(self) -> Iterator[BrokenRecord]:
        """Yield a fault for every invalid record of finished work.

        Arrays are written before their record. Arrays older than their record are not read, because a large store
        holds gigabytes of them. Corruption that leaves the modification time unchanged is only detected by
        `verify-store` or when the file is read.
        """
        written = {entry.path: entry.modified for entry in self.entries(layout.DIAGNOSTICS)}
        kinds: tuple[type[Record], ...] = (
            EvaluationRecord,
            DiagnosticsRecord,
            SearchRecord,
            CandidateRecord,
            TrialRecord,
            DecisionRecord,
            RowRecord,
            TransferRecord,
            Manifest,
        )
        for kind in kinds:
            for path, data in self.read_many(self.record_paths(kind)):
                try:
                    record = kind.decoded(path, data)
                except NewerRecord:
                    continue
                except BrokenRecord as fault:
                    yield fault
                    continue
                if not isinstance(record, DiagnosticsRecord):
                    continue
                untouched = written.get(record.arrays_path, math.inf) < written.get(path, -math.inf)
                if not untouched and (broken := self.arrays_fault(record)):
                    yield broken

    def arrays_fault(self, record: DiagnosticsRecord) -> BrokenRecord | None:
        """Return a fault of the record if its arrays are missing or damaged: diagnostics are recomputed as a whole."""
        reason = self.file_fault(record.arrays_path, record.arrays_sha256)
        return None if reason is None else BrokenRecord(record.path, f"its arrays {record.arrays}: {reason}")

    def set_aside(self, path: str) -> str:
        """Move an invalid file to `broken/`, so that it counts as missing. Return its new path."""
        number = 1 + sum(entry.path.startswith(f"{layout.BROKEN}/{path}.") for entry in self.entries(layout.BROKEN))
        place = f"{layout.BROKEN}/{path}.{number}"
        self._move(path, place)
        return place

    def _move(self, path: str, place: str) -> None:
        self.write(place, self.read(path))
        self.delete(path)

    def usable(self, kind: type[AnyRecord], path: str) -> AnyRecord | None:
        """Load a record; return None if it is missing or broken and may be overwritten.

        Raise NewerRecord for a record of a later version, which must never be overwritten.
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


CLEAN = re.compile(rb'"(best_validation|best_test|last)_(?:validation|test)_clean_accuracy":([0-9.eE+-]+)')
METRICS = re.compile(rb'"metrics":({[^{}]*}),"numerics":(\d+)')
_FOLDERS: dict[type[Record], str] = {
    TrialRecord: layout.TRIALS,
    EvaluationRecord: layout.EVALUATIONS,
    DiagnosticsRecord: layout.DIAGNOSTICS,
    SearchRecord: layout.SEARCHES,
    CandidateRecord: layout.SEARCHES,
    DecisionRecord: layout.DECISIONS,
    RowRecord: layout.ROWS,
    TransferRecord: layout.TRANSFERS,
    Manifest: layout.STUDIES,
}


def fault_of(path: str, data: bytes) -> BrokenRecord | None:
    """Return why the data is not a valid record for this path, or None. A record of a later version is valid."""
    kind = layout.kind_at(path)
    try:
        RECORD_TYPES[kind or ""].decoded(path, data)
    except NewerRecord:
        return None
    except BrokenRecord as fault:
        return fault
    return None


def _clean_accuracy(metrics: bytes) -> float | None:
    """Return the clean accuracy of the best checkpoint on validation images, else on test images, else of the last."""
    found = {match[1]: float(match[2]) for match in CLEAN.finditer(metrics)}
    return next((found[name] for name in (b"best_validation", b"best_test", b"last") if name in found), None)


def _state(path: str, data: bytes) -> str:
    try:
        return TrialRecord.decoded(path, data).status
    except NewerRecord:
        return "done"
    except BrokenRecord:
        return "broken"
