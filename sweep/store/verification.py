"""Every checksum of a store compared with what it is of: records, weights, and the arrays of diagnostics."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sweep.store import layout
from sweep.store.base import ABSENT, Store
from sweep.store.encoding import BrokenRecord, NewerRecord
from sweep.store.leftovers import selected_checkpoints
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.kinds import RECORD_TYPES
from sweep.store.records.manifest import Manifest
from sweep.store.records.record import Record
from sweep.store.records.trial import TrialRecord

WEIGHTS, ARRAYS = "weights", "arrays"
# Weights are judged by what the studies select, so manifests are read first.
KINDS: tuple[type[Record], ...] = (Manifest, *(kind for kind in RECORD_TYPES.values() if kind is not Manifest))


@dataclass(frozen=True)
class Finding:
    """A file that is not what it was when it was written; `record` is the one that describes it, if it is no record."""

    kind: str
    path: str
    reason: str
    record: str | None = None

    @property
    def is_missing(self) -> bool:
        return self.reason == ABSENT


class Verification:
    """What a look at every file with a checksum finds; nothing is changed."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.checked: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.unselected: list[str] = []  # weights that are absent and that no study asks for, as gc leaves a store
        self.newer: list[str] = []  # records of a later version: they are whole, and their files are not looked at
        self._manifests: list[Manifest] = []
        self._commands: dict[str, str] = {}  # folder name of a trial -> how it was computed
        for kind in KINDS:
            self._check_records(kind)
            if kind is Manifest:
                self._selected = selected_checkpoints(self._manifests)

    def rows(self) -> list[tuple[str, int, int, int]]:
        """Kind, files checked, damaged and missing."""
        damaged = Counter(one.kind for one in self.findings if not one.is_missing)
        missing = Counter(one.kind for one in self.findings if one.is_missing)
        kinds = [*(kind.kind for kind in KINDS), WEIGHTS, ARRAYS]
        return [
            (kind, self.checked[kind], damaged[kind], missing[kind])
            for kind in kinds
            if self.checked[kind] or missing[kind]
        ]

    def set_aside(self, finding: Finding) -> list[str]:
        """Out of the way, so that it counts as missing and is planned again; returns where it is kept.

        The record that describes a file goes first: without it nobody trusts the file, whatever happens next.
        """
        kept = []
        if finding.kind in (WEIGHTS, TrialRecord.kind):
            kept = set_trial_aside(self.store, finding.path.split("/")[1])
        for path in (finding.record, None if finding.is_missing else finding.path):
            if path is not None and self.store.exists(path):  # two files of one record take it along once
                kept.append(self.store.set_aside(path))
        return kept

    def commands(self, findings: Iterable[Finding]) -> list[str]:
        """What computes these again: as their trials were computed, or else the studies that ask for them."""
        found: dict[str, None] = {}
        for one in findings:
            for command in self._commands_for(one.path):
                found[command] = None
        return list(found)

    def _commands_for(self, path: str) -> list[str]:
        folder, name = path.split("/")[:2]
        if folder == layout.STUDIES:
            return [self._study_command(name.removesuffix(".json"))]
        if name in self._commands and folder != layout.SEARCHES:
            return [self._commands[name]]
        return [self._study_command(manifest.name) for manifest in self._manifests if _asks_for(manifest, folder, name)]

    def _study_command(self, study: str) -> str:
        return shlex.join(["python", "-m", "sweep.run", "--study", study, "--store", self.store.uri])

    def _check_records(self, kind: type[Record]) -> None:
        prefix = layout.EVALUATIONS if kind.kind == "shard" else ""
        for path, data in self.store.read_many(self.store.record_paths(kind, prefix), skip=self._note):
            self.checked[kind.kind] += 1
            try:
                record = kind.decoded(path, data)
            except NewerRecord:
                self.newer.append(path)
            except BrokenRecord as fault:
                self.findings.append(Finding(kind.kind, path, fault.reason))
            else:
                self._check_files(record)

    def _note(self, fault: BrokenRecord) -> None:
        """A record that cannot even be read."""
        kind = layout.kind_at(fault.path) or ""
        self.checked[kind] += 1
        self.findings.append(Finding(kind, fault.path, fault.reason))

    def _check_files(self, record: Record) -> None:
        if isinstance(record, Manifest):
            self._manifests.append(record)
        elif isinstance(record, DiagnosticsRecord):
            self._check_file(ARRAYS, record.arrays_path, record.arrays_sha256, record)
        elif isinstance(record, TrialRecord):
            if record.command:
                self._commands[layout.short(record.trial)] = record.command
            selected = self._selected.get(layout.short(record.trial), set())
            for name, kept in record.checkpoints.items():
                self._check_file(WEIGHTS, layout.weights(record.trial, name), kept.sha256, record, name in selected)

    def _check_file(self, kind: str, path: str, sha256: str | None, record: Record, wanted: bool = True) -> None:
        reason = self.store.file_fault(path, sha256)
        if reason != ABSENT:
            self.checked[kind] += 1
        elif not wanted:
            self.unselected.append(path)
            return
        if reason is not None:
            self.findings.append(Finding(kind, path, reason, record.path))


def set_trial_aside(store: Store, trial: str) -> list[str]:
    """So that it is trained again; returns where everything is kept.

    What was measured on its weights goes with them: those of the next training, perhaps on another machine, may differ
    in their last digits. Its own record goes last of the records, so that a kill in between leaves nothing unseen.
    """
    places = (f"{layout.EVALUATIONS}/{trial}", f"{layout.DIAGNOSTICS}/{trial}")
    found = [path for place in places for path in store.paths(place)]
    arrays = [path for path in found if not path.endswith(".json")]
    record = layout.trial_record(trial)
    records = [path for path in found if path.endswith(".json")] + ([record] if store.exists(record) else [])
    return [store.set_aside(path) for path in (*records, *arrays)]


def _asks_for(manifest: Manifest, folder: str, name: str) -> bool:
    if folder == layout.DECISIONS:
        return manifest.name == name
    if folder == layout.SEARCHES:
        return any(search.id == name for search in manifest.searches)
    return any(cell.trial is not None and layout.short(cell.trial) == name for cell in manifest.cells)
