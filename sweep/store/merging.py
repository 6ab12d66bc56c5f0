"""Merging of stores. All records are read and compared before anything is written."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.errors import UserError
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.encoding import BrokenRecord, NewerRecord
from sweep.store.folder import FolderStore
from sweep.store.lease_upkeep import held
from sweep.store.leases import take
from sweep.store.manifests import SHARED, agree, united
from sweep.store.publishing import leavable, without_command
from sweep.store.records.decision import DecisionRecord
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.manifest import Manifest
from sweep.store.records.record import Provenance, Record
from sweep.store.records.row import RowRecord
from sweep.store.records.search import CandidateRecord, SearchRecord
from sweep.store.records.transfer import TransferRecord
from sweep.store.records.trial import TrialRecord

SHOWN = 20
# In copying order: a trial comes after its evaluations, and a study's manifest comes last.
KINDS: tuple[type[Record], ...] = (
    EvaluationRecord,
    DiagnosticsRecord,
    CandidateRecord,
    SearchRecord,
    TrialRecord,
    DecisionRecord,
    RowRecord,
    TransferRecord,
    Manifest,
)
UNFINISHED = ("failed", "running")


@dataclass(frozen=True)
class Found:
    """A record in one store, with its encoded bytes."""

    store: Store
    record: Record
    data: bytes


class Merge:
    """The records of the sources that the target lacks. Raises one UserError for all contradictions between stores.

    `leave_out` names the members of LEAVABLE that are not copied.
    """

    def __init__(self, target: Store, sources: Sequence[Store], leave_out: Collection[str] = ()) -> None:
        self.target = target
        self.leave_out = frozenset(leave_out)
        self.new: dict[str, Found] = {}
        self.warnings: list[str] = []
        self._faults: list[str] = []
        for source in sources:
            if _place(source) == _place(target):
                raise UserError(f"store {source.uri} cannot be merged into itself")
        known = {found.record.path: found for found in self._records(target)}
        for source in sources:
            for found in self._records(source):
                if leavable(found.record.path) in self.leave_out:
                    continue
                if "commands" in self.leave_out and (bare := without_command(found.record)) is not found.record:
                    found = Found(source, bare, bare.encoded())
                self._add(known, found)
        self._compare_origins([found for found in known.values() if isinstance(found.record, TrialRecord)])
        links = target.linked_folders() if isinstance(target, FolderStore) else {}
        self._faults += [
            f"{target.uri}/{link} is a link, through which nothing is written; put the folder itself in its place"
            for link in links
            if any(path.startswith(f"{link}/") for path in self.new)
        ]
        for found in self.new.values():
            self._faults += [f"{found.store.uri}: {fault}" for fault in _file_faults(found)]
        if self._faults:
            more = [f"  … and {len(self._faults) - SHOWN} more"] if len(self._faults) > SHOWN else []
            lines = [f"  {fault}" for fault in self._faults[:SHOWN]]
            raise UserError(
                "\n".join(["nothing was merged; stores are broken or contradict each other:", *lines, *more])
            )

    def write(self) -> None:
        """Copy the files of each record before the record, so that an interrupted merge leaves no partial record."""
        if not self.new:
            return
        order = {kind.kind: number for number, kind in enumerate(KINDS)}
        lease = take(self.target, layout.merge_lease(uuid.uuid4().hex))  # tells gc that more files are coming
        with lease or contextlib.nullcontext():
            for path, found in sorted(self.new.items(), key=lambda item: order[item[1].record.kind]):
                for other in _files(found):
                    if leavable(other) not in self.leave_out and not self._is_being_written(found.record, other):
                        _transfer(found.store, self.target, other)
                self.target.write(path, found.data)

    def _is_being_written(self, record: Record, path: str) -> bool:
        """Return whether the path is the journal of a search that a driver of the target leads and writes itself."""
        if not isinstance(record, SearchRecord) or path != layout.search_journal(record.id):
            return False
        return layout.search_lease(record.id) in held(self.target)

    def _records(self, store: Store) -> Iterator[Found]:
        for kind in KINDS:
            for path, data in store.read_many(store.record_paths(kind)):
                try:
                    yield Found(store, kind.decoded(path, data), data)
                except NewerRecord:
                    raise UserError(
                        f"{store.uri}/{path} was written by a newer version; update robustsweep first"
                    ) from None
                except BrokenRecord as fault:
                    if kind is CandidateRecord:
                        self.warnings.append(f"{store.uri}: {fault}; it is left out")
                    else:
                        self._faults.append(f"{store.uri}: {fault}")

    def _add(self, known: dict[str, Found], found: Found) -> None:
        path = found.record.path
        other = known.get(path)
        if other is None or _is_further(other.record, found.record):
            known[path] = self.new[path] = found
            return
        conflict = _conflict(other.record, found.record)
        if conflict:
            self._faults.append(f"{path}: {conflict}\n    {other.store.uri}\n    {found.store.uri}")
            return
        both: Record = other.record
        if isinstance(other.record, Manifest) and isinstance(found.record, Manifest):
            both = _joined(other.record, found.record)
        elif isinstance(other.record, TransferRecord) and isinstance(found.record, TransferRecord):
            both = found.record.with_transfers(other.record.transfers)
            both = other.record if len(both.transfers) == len(other.record.transfers) else both
        if both != other.record:
            known[path] = self.new[path] = Found(found.store, both, both.encoded())

    def _compare_origins(self, trials: list[Found]) -> None:
        """Check that trials on one data set name had the same data. Warn about different devices or builds of torch."""
        first: dict[tuple[str, str], Found] = {}
        made_with: dict[str, set[str]] = {}
        for found in trials:
            record = found.record
            assert isinstance(record, TrialRecord)
            for name, sha256 in record.data.items():
                other = first.setdefault((record.config.dataset, name), found)
                assert isinstance(other.record, TrialRecord)
                if other.record.data[name] != sha256:
                    here, there = layout.short(record.trial), layout.short(other.record.trial)
                    self._faults.append(
                        f"trials {there} and {here} were trained on different data under the name {name!r}"
                        f"\n    {other.store.uri}\n    {found.store.uri}"
                    )
            for what, value in record.made_with.items():
                made_with.setdefault(what, set()).add(value)
        for what, values in made_with.items():
            if len(values) > 1:
                listed = ", ".join(sorted(values))
                self.warnings.append(f"trials were computed with different {what}: {listed}; their rounding differs")


def _is_further(known: Record, new: Record) -> bool:
    """Return whether the new record should replace the known one because it is more complete."""
    if isinstance(known, TrialRecord | SearchRecord) and isinstance(new, TrialRecord | SearchRecord):
        return known.status in UNFINISHED and new.status not in UNFINISHED
    if isinstance(known, EvaluationRecord) and isinstance(new, EvaluationRecord):
        return known.counterexamples is None and new.counterexamples is not None and _outcome(known) == _outcome(new)
    if isinstance(known, DecisionRecord) and isinstance(new, DecisionRecord):
        return len(new.seeds) > len(known.seeds) and _same_seeds(known, new)
    return False


def _same_seeds(known: DecisionRecord, new: DecisionRecord) -> bool:
    """Return whether two decisions agree on the seeds that both have."""
    shared = min(len(known.seeds), len(new.seeds))
    one, two = ((each.seeds[:shared], each.trials[:shared], each.differences[:shared]) for each in (known, new))
    return one == two


def _conflict(known: Record, new: Record) -> str | None:
    if isinstance(known, Manifest) and isinstance(new, Manifest):
        if not agree(known, new):
            return f"the same name for two different studies ({_difference(known, new)}); {_way_out(new)}"
        trials = {(cell.label, cell.seed): cell.trial for cell in known.cells}
        for cell in new.cells:
            before = trials.get((cell.label, cell.seed))
            if before and cell.trial and before != cell.trial:
                return f"different trials under {cell.label!r} seed {cell.seed}; give one another label"
        return None
    if isinstance(new, TrialRecord | SearchRecord) and new.status in UNFINISHED:
        return None
    if isinstance(known, DecisionRecord) and isinstance(new, DecisionRecord):
        return None if _same_seeds(known, new) else "two different outcomes of one decision"
    if isinstance(known, RowRecord) and isinstance(new, RowRecord) and known.subject != new.subject:
        return f"two models are called {known.label!r}; evaluate one again with another --as"
    if isinstance(known, TransferRecord) and isinstance(new, TransferRecord):
        return None if known.weights == new.weights else "two different weights of one checkpoint"
    return None if _outcome(known) == _outcome(new) else f"two different outcomes of one {known.kind}"


def _difference(known: Manifest, new: Manifest) -> str:
    """Return the first settings in which two manifests differ, in the notation of --set."""
    one, two = (
        {"epsilon": each.epsilon, **_flat({key: each.study.get(key) for key in SHARED})} for each in (known, new)
    )
    found = [f"{key} = {one.get(key)} and {two.get(key)}" for key in {**one, **two} if one.get(key) != two.get(key)]
    return "; ".join(found[:3]) + ("; …" if len(found) > 3 else "")


def _flat(content: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= _flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return found


def _way_out(new: Manifest) -> str:
    name = f"{new.name}_variant"
    return (
        f"one is a variant, made by --set or by an edit: run it once more with --set name={name} (its trials are "
        f"stored, none is trained again), delete {new.path} of its store, and merge"
    )


def _joined(known: Manifest, new: Manifest) -> Manifest:
    """Merge two manifests. Cells come from the one with fewer cells that still wait for a search."""
    undecided = [sum(cell.trial is None for cell in manifest.cells) for manifest in (known, new)]
    return united(known, new) if undecided[0] > undecided[1] else united(new, known)


def _outcome(record: Record) -> Any:
    """Return the part of a record that two computations must agree on: everything except time, machine and duration."""
    if isinstance(record, TrialRecord):
        curve = [{key: value for key, value in row.items() if key != "seconds"} for row in record.curve]
        return record.config, record.numerics, record.status, curve, record.checkpoints
    if isinstance(record, SearchRecord):
        return record.chosen, [(one.trial, one.state, one.value) for one in record.candidates]
    # Counterexamples may differ between machines, which round differently.
    return record.model_dump(exclude={*Provenance.model_fields, "wall_seconds", "counterexamples"})


def _files(found: Found) -> list[str]:
    """Return the paths of the files that are copied along with a record."""
    record = found.record
    if isinstance(record, TrialRecord):
        left = {layout.trial_file(record.trial, name) for name in (layout.RECORD, layout.RESUME, layout.PROGRESS)}
        return [
            path
            for path in found.store.paths(layout.trial_folder(record.trial))
            if path not in left and (path in _checksums(record) or not path.endswith(layout.WEIGHTS))
        ]
    if isinstance(record, SearchRecord):
        journal = layout.search_journal(record.id)
        return [journal] if _has(found.store, journal) else []
    found_there = set(found.store.paths(record.path.rpartition("/")[0])) if _checksums(record) else set()
    return [path for path in _checksums(record) if path in found_there]


def _checksums(record: Record) -> dict[str, str | None]:
    """Return the files that a record describes, each with its expected SHA-256."""
    if isinstance(record, TrialRecord):
        return {layout.weights(record.trial, name): kept.sha256 for name, kept in record.checkpoints.items()}
    if isinstance(record, EvaluationRecord) and record.counterexamples is not None:
        return {record.counterexamples_path: record.counterexamples.sha256}
    return {record.arrays_path: record.arrays_sha256} if isinstance(record, DiagnosticsRecord) else {}


def _file_faults(found: Found) -> Iterator[str]:
    for path, expected in _checksums(found.record).items():
        if _has(found.store, path):
            if expected is not None and hashlib.sha256(found.store.read(path)).hexdigest() != expected:
                yield f"broken file {path}: it is not the one that {found.record.path} describes"
        elif found.store.exists(path):
            yield f"broken file {path}: it is a link; put the file itself there"
        elif isinstance(found.record, DiagnosticsRecord):  # no table needs the files of other records
            yield f"broken record {found.record.path}: {path} is absent"


def _has(store: Store, path: str) -> bool:
    """Return whether the store holds a regular file at this path. Links do not count."""
    return path in store.paths(path.rpartition("/")[0])


def _transfer(source: Store, target: Store, path: str) -> None:
    local = source.local(path)
    if local is not None:
        target.push_file(local, path)
    else:
        target.write(path, source.read(path))


def _place(store: Store) -> str:
    return str(store.root.resolve()) if isinstance(store, FolderStore) else store.uri.rstrip("/")
