"""Verification of every checksum in a store: records, weights, counterexamples and arrays of diagnostics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sweep import commands
from sweep.store import layout
from sweep.store.base import ABSENT, Store
from sweep.store.encoding import BrokenRecord, NewerRecord
from sweep.store.leftovers import selected_checkpoints
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.kinds import RECORD_TYPES
from sweep.store.records.manifest import Manifest
from sweep.store.records.record import Record
from sweep.store.records.trial import TrialRecord

WEIGHTS, ARRAYS, COUNTEREXAMPLES = "weights", "arrays", "counterexamples"
# Whether missing weights matter depends on the studies' selections, so manifests are read first.
KINDS: tuple[type[Record], ...] = (Manifest, *(kind for kind in RECORD_TYPES.values() if kind is not Manifest))


@dataclass(frozen=True)
class Finding:
    """A damaged or missing file. `record` is the path of the record that describes it, unless it is one itself."""

    kind: str
    path: str
    reason: str
    record: str | None = None

    @property
    def is_missing(self) -> bool:
        return self.reason == ABSENT


class Verification:
    """The result of checking every file that has a checksum. The store is not changed."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.checked: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.unselected: list[str] = []  # missing weights that no study selects, as after gc
        self.newer: list[str] = []  # valid records of a later version, whose files are not checked
        self._manifests: list[Manifest] = []
        self._commands: dict[str, str] = {}  # trial folder name -> command that computed it
        for kind in KINDS:
            self._check_records(kind)
            if kind is Manifest:
                self._selected = selected_checkpoints(self._manifests)

    def rows(self) -> list[tuple[str, int, int, int]]:
        """Return kind, number of files checked, damaged and missing, for each kind."""
        damaged = Counter(one.kind for one in self.findings if not one.is_missing)
        missing = Counter(one.kind for one in self.findings if one.is_missing)
        kinds = [*(kind.kind for kind in KINDS), WEIGHTS, ARRAYS, COUNTEREXAMPLES]
        return [
            (kind, self.checked[kind], damaged[kind], missing[kind])
            for kind in kinds
            if self.checked[kind] or missing[kind]
        ]

    def set_aside(self, finding: Finding) -> list[str]:
        """Move a file and its record to `broken/`, so that it is computed again. Return the new paths.

        The record is moved first: without it, the file is not used even if this process is interrupted.
        """
        kept = []
        if finding.kind == COUNTEREXAMPLES:
            return self._without_counterexamples(finding)
        if finding.kind in (WEIGHTS, TrialRecord.kind):
            kept = set_trial_aside(self.store, finding.path.split("/")[1])
        for path in (finding.record, None if finding.is_missing else finding.path):
            if path is not None and self.store.exists(path):  # may already be moved with another file
                kept.append(self.store.set_aside(path))
        return kept

    def _without_counterexamples(self, finding: Finding) -> list[str]:
        """Drop lost counterexamples but keep the verdicts, which would take days of attacks to recompute."""
        record = self.store.usable(EvaluationRecord, finding.record or "")
        if record is not None:
            self.store.write_record(record.model_copy(update={"counterexamples": None}))
        return [] if finding.is_missing else [self.store.set_aside(finding.path)]

    def commands(self, findings: Iterable[Finding]) -> list[str]:
        """Return the commands that recompute the findings: those of their trials, else of the studies that use them."""
        found: dict[str, None] = {}
        for one in findings:
            for command in self._commands_for(one.path) if one.kind != COUNTEREXAMPLES else ():
                found[command] = None
        return list(found)

    def _commands_for(self, path: str) -> list[str]:
        folder, name = path.split("/")[:2]
        if folder == layout.TRANSFERS:
            return [commands.spelled("sweep.transfer", *commands.store_words(self.store.uri))]
        if folder == layout.STUDIES:
            return [self._study_command(name.removesuffix(".json"))]
        if name in self._commands and folder != layout.SEARCHES:
            return [self._commands[name]]
        return [self._study_command(manifest.name) for manifest in self._manifests if _asks_for(manifest, folder, name)]

    def _study_command(self, study: str) -> str:
        made_by = next((one.command for one in self._manifests if one.name == study), None)
        return commands.run(study, made_by, self.store.uri)

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
        """Add a finding for a record that cannot be read."""
        kind = layout.kind_at(fault.path) or ""
        self.checked[kind] += 1
        self.findings.append(Finding(kind, fault.path, fault.reason))

    def _check_files(self, record: Record) -> None:
        if isinstance(record, Manifest):
            self._manifests.append(record)
        elif isinstance(record, DiagnosticsRecord):
            self._check_file(ARRAYS, record.arrays_path, record.arrays_sha256, record)
        elif isinstance(record, EvaluationRecord):
            if record.counterexamples is not None:
                self._check_file(COUNTEREXAMPLES, record.counterexamples_path, record.counterexamples.sha256, record)
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
    """Move a trial to `broken/`, so that it is trained again. Return the new paths.

    All measurements of its weights are moved too, because the weights of the next training may differ in their last
    digits. The trial's own record is moved after the other records, so that an interruption leaves none unnoticed.
    """
    places = (f"{layout.EVALUATIONS}/{trial}", f"{layout.DIAGNOSTICS}/{trial}", f"{layout.TRANSFERS}/{trial}")
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
