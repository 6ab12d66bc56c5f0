"""The store: append-only records, atomic, checksummed, in a folder or behind s3://. Loads no torch and no ray."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.errors import UserError
from sweep.store.encoding import BrokenRecord, decode, encode, is_intact
from sweep.store.leases import Claim, ClaimFile, alone
from sweep.store.manifests import united

__all__ = ["BrokenRecord", "Entry", "FolderStore", "Store", "open_store"]

# Inside the class, `list` is the method.
Paths = list[str]
Files = list[Path]
Broken = list[BrokenRecord]

FORMAT = 1
RECORD = "record.json"
# Beside every record that is not "done": states of thousands of trials come from one listing.
ATTENTION = "not_done"


@dataclass(frozen=True)
class Entry:
    path: str
    size: int
    modified: float


class Store:
    """Paths are relative, with forward slashes. A write is seen whole or not at all."""

    uri: str

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

    def list(self, prefix: str = "") -> Paths:
        return sorted(entry.path for entry in self.entries(prefix))

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

    def fetch_folder(self, prefix: str, target: Path) -> Files:
        """Copy everything below `prefix` into a local folder."""
        fetched = []
        for path in self.list(prefix):
            destination = target / path[len(prefix.rstrip("/")) + 1 :]
            destination.parent.mkdir(parents=True, exist_ok=True)
            self.fetch_file(path, destination)
            fetched.append(destination)
        return fetched

    def read_many(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """What exists of these paths, in order; a remote store reads several at once."""
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                yield path, self.read(path)

    def read_json(self, path: str) -> dict[str, Any]:
        return decode(path, self.read(path))

    def write_json(self, path: str, record: dict[str, Any]) -> None:
        self.write(path, encode(record))

    def claim(self, name: str, seconds: float = 60.0) -> Claim | None:
        """A lease on a piece of work, kept alive by a heartbeat until released; None when another holds it."""
        return ClaimFile(self, name).take(seconds)

    def claims(self) -> dict[str, dict[str, Any]]:
        """Who holds what: name -> owner, host, pid, expires. Expired and released ones are left out."""
        return ClaimFile.held(self)

    # What the product keeps, by name.

    def trial_record(self, trial: str) -> dict[str, Any] | None:
        return self._maybe(f"trials/{trial[:16]}/{RECORD}")

    def trial_records(self, broken: Broken | None = None) -> Iterator[dict[str, Any]]:
        """All trials' records; broken ones are appended to `broken`, or raised when it is not given."""
        return self._records((path for path in self.list("trials") if path.endswith(f"/{RECORD}")), broken)

    def write_trial_record(self, record: dict[str, Any]) -> None:
        """Called last of a trial: the record makes it final."""
        place = f"trials/{record['trial'][:16]}"
        if record["status"] != "done":
            self.write(f"{place}/{ATTENTION}", record["status"].encode())
        self.write_json(f"{place}/{RECORD}", record)
        if record["status"] == "done":
            self.delete(f"{place}/{ATTENTION}")

    def trial_states(self) -> dict[str, str]:
        """Folder name of every recorded trial -> done, failed, collapsed or broken.

        From one listing: a record is parsed only when something stands beside it, or when its checksum is wrong.
        """
        present = {entry.path for entry in self.entries("trials")}
        states = {}
        for path in present:
            place, _, name = path.rpartition("/")
            if name == RECORD:
                done = f"{place}/{ATTENTION}" not in present and self._is_intact(path)
                states[place.removeprefix("trials/")] = "done" if done else self._state(path)
        return states

    def evaluation_records(self, trial: str | None = None, broken: Broken | None = None) -> Iterator[dict[str, Any]]:
        """Finished evaluations of one trial, or of all; shards in progress are left out."""
        prefix = f"evaluations/{trial[:16]}" if trial else "evaluations"
        return self._records((p for p in self.list(prefix) if p.count("/") == 3 and p.endswith(".json")), broken)

    def evaluation_paths(self) -> Paths:
        return [p for p in self.list("evaluations") if p.count("/") == 3 and p.endswith(".json")]

    def is_broken(self, path: str) -> bool:
        """Whether a record is there and cannot be trusted; of a folder's 30,000 this takes half a second."""
        if self._is_intact(path):
            return False
        try:
            self.read_json(path)
        except BrokenRecord:
            return True
        except FileNotFoundError:
            pass
        return False

    def broken_results(self) -> Paths:
        """Records of evaluations and diagnostics that cannot be trusted, found by a look at every one of them."""
        diagnostics = [path for path in self.list("diagnostics") if path.endswith(".json")]
        return [path for path in [*self.evaluation_paths(), *diagnostics] if self.is_broken(path)]

    def search_record(self, search: str) -> dict[str, Any] | None:
        return self._maybe(f"searches/{search}/{RECORD}")

    def manifest(self, study: str) -> dict[str, Any] | None:
        return self._maybe(f"studies/{study}.json")

    def manifests(self, broken: Broken | None = None) -> Iterator[dict[str, Any]]:
        return self._records((path for path in self.list("studies") if path.endswith(".json")), broken)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Also keeps what the stored one has besides, see `manifests.united`; two writers follow each other."""
        name = manifest["name"]
        with alone(self, f"studies-{name}"):
            before = None
            with contextlib.suppress(BrokenRecord):
                before = self.manifest(name)
            self.write_json(f"studies/{name}.json", united(before, manifest))

    def _maybe(self, path: str) -> dict[str, Any] | None:
        try:
            return self.read_json(path)
        except FileNotFoundError:
            return None

    def _is_intact(self, path: str) -> bool:
        """A cheap look at a record's checksum; a remote store keeps its objects whole by itself."""
        return True

    def _state(self, path: str) -> str:
        try:
            return str(self.read_json(path).get("status", "broken"))
        except BrokenRecord:
            return "broken"
        except FileNotFoundError:  # set aside for another try in this moment
            return "missing"

    def _records(self, paths: Iterable[str], broken: Broken | None) -> Iterator[dict[str, Any]]:
        for path, data in self.read_many(paths):
            try:
                yield decode(path, data)
            except BrokenRecord as fault:
                if broken is None:
                    raise
                broken.append(fault)


class FolderStore(Store):
    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.uri = str(self.root)
        there = next((place for place in (self.root, *self.root.parents) if os.path.exists(place)), None)
        if there is not None and not there.is_dir():
            below = "" if there == self.root else f"{self.root} cannot be made: "
            raise UserError(f"store {below}{there} is a file; --store needs a folder or an s3:// address")

    def read(self, path: str) -> bytes:
        return self._at(path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        with self._replacing(path) as temporary:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

    def create(self, path: str, data: bytes) -> bool:
        target = self._at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return True

    def exists(self, path: str) -> bool:
        return self._at(path).is_file()

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        start = self._at(prefix) if prefix else self.root
        pending = [(str(start), f"{prefix.rstrip('/')}/" if prefix else "")]
        while pending:
            folder, base = pending.pop()
            try:
                with os.scandir(folder) as found:
                    for item in found:
                        if item.is_dir(follow_symlinks=False):
                            pending.append((item.path, f"{base}{item.name}/"))
                        elif item.is_file(follow_symlinks=False) and not _is_temporary(item.name):
                            with contextlib.suppress(FileNotFoundError):
                                facts = item.stat()
                                yield Entry(base + item.name, facts.st_size, facts.st_mtime)
            except FileNotFoundError:
                continue

    def temporary_files(self) -> Files:
        """What writers that were killed left behind, or what is being written now."""
        return [path for path in self.root.rglob(".*.tmp") if _is_temporary(path.name)]

    def delete(self, path: str) -> None:
        self._at(path).unlink(missing_ok=True)

    def local(self, path: str) -> Path:
        return self._at(path)

    def push_file(self, source: Path, path: str) -> None:
        if source.absolute() == self._at(path):
            return
        with self._replacing(path) as temporary:
            shutil.copyfile(source, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())

    def fetch_file(self, path: str, target: Path) -> None:
        shutil.copyfile(self._at(path), target)

    def _is_intact(self, path: str) -> bool:
        try:
            with open(f"{self.root}/{path}", "rb") as file:  # a Path for each of 30,000 takes half of the time
                return is_intact(file.read())
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def _replacing(self, path: str) -> Iterator[Path]:
        target = self._at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            yield temporary
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _at(self, path: str) -> Path:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} leaves the store")
        return self.root / path


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def open_store(uri: str | Path) -> Store:
    """A folder, or s3://bucket/prefix?endpoint_override=…&region=…"""
    text = str(uri)
    if text.startswith("s3://"):
        from sweep.store.s3 import S3Store

        return S3Store(text)
    if "://" in text and not text.startswith("file://"):
        raise UserError(f"store {text!r}: only folders and s3:// addresses are supported")
    return FolderStore(Path(text.removeprefix("file://")))
