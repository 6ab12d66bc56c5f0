"""The store's records as pandas frames. What is broken or foreign is listed as a problem and left out."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports.store.cache import Columns, RowCache
from reports.store.rows import (
    CELL_COLUMNS,
    EVALUATION_COLUMNS,
    OUTSIDE,
    Row,
    evaluation_row,
    outside_row,
    planned_row,
    trial_row,
    with_outside,
)
from sweep import commands
from sweep.bulk import no_collection
from sweep.errors import UserError
from sweep.store import layout
from sweep.store.base import AnyRecord, Entry, Store
from sweep.store.encoding import BrokenRecord
from sweep.store.opening import existing_store
from sweep.store.records.decision import DecisionRecord
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.manifest import Manifest
from sweep.store.records.record import Record
from sweep.store.records.row import RowRecord
from sweep.store.records.search import SearchRecord
from sweep.store.records.transfer import TransferRecord
from sweep.store.records.trial import TrialRecord
from sweep.store.verdicts import unpack


@dataclass(frozen=True)
class Problem:
    """A record that was left out, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Diagnostics:
    summary: dict[str, float | None]
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True)
class ReportData:
    """All that tables, tests, figures and the page are made from.

    cells        one row per study, label and seed, whether run or not. `trial` is the folder name (16 hex digits),
                 `status` one of waiting (for a search), missing, done, collapsed, failed; `last_epoch` the last row
                 of the curve.
    evaluations  one row per trial, checkpoint and attack. Accuracies are in [0, 1]; `epsilon` is text such as 8/255;
                 `settings` the attack's full description.
    Curves, diagnostics and verdicts are read when asked for: a large store would not fit in memory.
    """

    store: Store
    manifests: dict[str, Manifest]
    cells: pd.DataFrame
    evaluations: pd.DataFrame
    searches: dict[str, SearchRecord] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    decisions: tuple[DecisionRecord, ...] = ()
    _diagnostics: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _transfers: frozenset[str] = frozenset()

    @cached_property
    def _settings(self) -> dict[str, dict[str, Any]]:
        return dict(zip(self.evaluations["path"], self.evaluations["settings"], strict=True))

    def run_command(self, study: str, *words: str) -> str:
        """What a user types to run the study again in this store, as it was run last."""
        known = self.manifests.get(study)
        return commands.run(study, known.command if known else None, self.store.uri, *words)

    def decide_command(self, study: str, claim: str) -> str:
        known = self.manifests.get(study)
        return commands.decide(study, known.command if known else None, self.store.uri, claim)

    def suite_command(self, study: str, suite: str) -> str:
        """The run that measures this suite: attacks that the study lists would stand in its way."""
        known = self.manifests.get(study)
        instead = ["--set", "evaluation.attacks=[]"] if known and known.evaluation.attacks else []
        return self.run_command(study, *instead, "--set", f"evaluation.suite={suite}")

    def headline(self, study: str) -> str:
        """The checkpoint that the study's tables show unless another is asked for."""
        return self.manifests[study].checkpoint

    def curve(self, trial: str) -> pd.DataFrame:
        """One row per epoch; empty when the trial has no record."""
        record = self._record(TrialRecord, layout.trial_record(trial))
        return pd.DataFrame(record.curve if record else [])

    def verdicts(self, path: str) -> np.ndarray:
        """Per test image: does the model survive the attack? `path` is a row of `evaluations`; empty when gone."""
        record = self._record(EvaluationRecord, path)
        return record.survivors if record else np.zeros(0, dtype=bool)

    def distances(self, path: str) -> np.ndarray:
        """Per test image: how far away the model was fooled; empty when gone, or of an attack that does not look."""
        record = self._record(EvaluationRecord, path)
        return np.zeros(0) if record is None or record.distances is None else record.fooled_at

    def settings(self, path: str) -> dict[str, Any]:
        """How the attack of such a row describes itself."""
        return self._settings[path]

    def phase_verdicts(self, path: str) -> dict[str, np.ndarray]:
        """AutoAttack: who is left after each phase, in the order of the attack."""
        record = self._record(EvaluationRecord, path)
        return {name: unpack(bits, record.images) for name, bits in record.phases.items()} if record else {}

    def diagnostics(self, trial: str, checkpoint: str, study: str | None = None) -> Diagnostics | None:
        """Those with the settings that the study asks for, or else those on most images."""
        record = self._diagnostics_record(trial, checkpoint, study)
        if record is None:
            return None
        try:
            content = self.store.read(record.arrays_path)
            if record.arrays_sha256 not in (None, hashlib.sha256(content).hexdigest()):
                raise ValueError(
                    f"{record.arrays} is not the file that was written; after "
                    "verify-store --repair, running the study computes it again"
                )
            with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                return Diagnostics(record.summary, {name: archive[name] for name in archive.files})
        except Exception as fault:  # a dozen types, by the kind of damage; one file is no reason for no report
            self._note(BrokenRecord(record.path, str(fault) or type(fault).__name__))
            return None

    def diagnostics_summary(self, trial: str, checkpoint: str, study: str | None = None) -> dict[str, float | None]:
        """The summary alone: tables need no arrays, which are megabytes for a full data set."""
        record = self._diagnostics_record(trial, checkpoint, study)
        return record.summary if record else {}

    @property
    def has_transfers(self) -> bool:
        """Whether counterexamples were tried on other models."""
        return bool(self._transfers)

    def transfers(self, trial: str, checkpoint: str, norm: str, epsilon: str) -> TransferRecord | None:
        """What other models' counterexamples did to this one; None where it has other weights by now."""
        path = layout.transfer_record(trial, checkpoint, norm, epsilon)
        record = self._record(TransferRecord, path) if path in self._transfers else None
        return record if record is not None and record.weights == self._weights.get((trial, checkpoint)) else None

    @cached_property
    def _weights(self) -> dict[tuple[str, str], str]:
        kept = zip(self.cells["trial"], self.cells["checkpoints"], strict=True)
        return {(trial, name): one["sha256"] for trial, found in kept if found for name, one in found.items()}

    def _diagnostics_record(self, trial: str, checkpoint: str, study: str | None) -> DiagnosticsRecord | None:
        """Each has its settings in its name: studies with different ones may share a trial."""
        paths = self._diagnostics.get((trial, checkpoint), [])
        found = list(self.store.records(DiagnosticsRecord, sorted(paths), self._note))
        if len(found) < 2:
            return found[0] if found else None
        names = [study] if study else list(self.cells.loc[self.cells["trial"] == trial, "study"])
        manifests = [self.manifests[name] for name in names]
        asked = [(one.norm, one.evaluation.epsilon, one.evaluation.images) for one in manifests]
        return max(
            found,
            key=lambda one: (
                (one.norm, one.epsilon, one.images) in asked,
                float(one.summary.get("images_train") or 0.0),
            ),
        )

    def _record(self, kind: type[AnyRecord], path: str) -> AnyRecord | None:
        """What was there a moment ago may be gone or broken now."""
        return next(self.store.records(kind, [path], self._note), None)

    def _note(self, fault: BrokenRecord) -> None:
        problem = Problem(fault.path, fault.reason)
        if problem not in self.problems:
            self.problems.append(problem)


def load(store: Store | str | Path, studies: Iterable[str] | None = None, cache: Path | None = None) -> ReportData:
    """The records of the named studies, or of all studies in the store; `cache` is a folder for rows read before."""
    opened = store if isinstance(store, Store) else existing_store(store)
    problems: list[Problem] = []

    def skip(fault: BrokenRecord) -> None:
        problems.append(Problem(fault.path, fault.reason))

    manifests = opened.manifests(skip)
    if studies is not None:
        wanted = list(dict.fromkeys(studies))
        broken = {problem.path for problem in problems}
        absent = [name for name in wanted if name not in manifests and layout.manifest(name) not in broken]
        if absent:
            known = ", ".join(sorted(manifests)) or "none"
            raise UserError(f"the store has no study {', '.join(map(repr, absent))}; it has: {known}")
        manifests = {name: manifests[name] for name in wanted if name in manifests}
    planned = [planned_row(name, cell) for name, manifest in manifests.items() for cell in manifest.cells]
    paths = [path for path in opened.record_paths(RowRecord) if path.split("/")[1] in manifests]
    outside = list(opened.records(RowRecord, paths, skip))
    planned += map(outside_row, outside)
    trials = {row["trial"] for row in planned}
    found = _Entries(opened, trials, skip)
    rows = RowCache(cache)
    with no_collection():
        outcomes = rows.columns(opened, TrialRecord, found.of(TrialRecord), trial_row, skip)
        evaluations = rows.columns(opened, EvaluationRecord, found.of(EvaluationRecord), evaluation_row, skip)
        if OUTSIDE in evaluations.get("checkpoint", ()):
            shown = with_outside(_rows(evaluations), [(row, manifests[row.study]) for row in outside])
            evaluations = {name: [row[name] for row in shown] for name in evaluations}
        by_trial = {row["trial"]: row for row in _rows(outcomes)}
        joined = [_outcome(row, by_trial.get(row["trial"], {})) for row in planned]
        cells = _frame({name: [row.get(name) for row in joined] for name in CELL_COLUMNS})
        frame = _frame({name: evaluations.get(name, []) for name in EVALUATION_COLUMNS})
    searches = {entry.id for manifest in manifests.values() for entry in manifest.searches}
    records = opened.records(SearchRecord, sorted(map(layout.search_record, searches)), skip)
    paths = [path for path in opened.record_paths(DecisionRecord) if path.split("/")[1] in manifests]
    decisions = tuple(opened.records(DecisionRecord, paths, skip))
    diagnostics: dict[tuple[str, str], list[str]] = {}
    for entry in found.of(DiagnosticsRecord):
        trial, checkpoint = entry.path.split("/")[1], layout.diagnosed_checkpoint(entry.path)
        diagnostics.setdefault((trial, checkpoint), []).append(entry.path)
    return ReportData(
        opened,
        manifests,
        cells,
        frame,
        {record.id: record for record in records},
        sorted(problems, key=lambda problem: problem.path),
        decisions,
        diagnostics,
        frozenset(entry.path for entry in found.of(TransferRecord)),
    )


def _outcome(planned: Row, trained: Row) -> Row:
    """What a study asks for with what came of it; of a row from elsewhere its own words stay."""
    return {**trained, **planned} if planned["method"] == OUTSIDE else {**planned, **trained}


def broken_manifests(store_uri: str | Path, studies: Iterable[str] | None = None) -> list[Problem]:
    """Those of the named studies, or of all, whose manifests cannot be trusted: no table shows them."""
    wanted = None if studies is None else set(map(layout.manifest, studies))
    faults: list[BrokenRecord] = []
    existing_store(store_uri).manifests(faults.append)
    return [Problem(fault.path, fault.reason) for fault in faults if wanted is None or fault.path in wanted]


class _Entries:
    """What is listed of the trials that are asked for, by kind of record."""

    def __init__(self, store: Store, trials: set[str], skip: Any) -> None:
        self._found: dict[str, list[Entry]] = {}
        for folder in (layout.TRIALS, layout.EVALUATIONS, layout.DIAGNOSTICS, layout.TRANSFERS):
            for entry in store.entries(folder):
                kind = layout.kind_at(entry.path)
                name = entry.path.split("/")[1]
                if kind == TrialRecord.kind and not layout.SHORT_NAME.fullmatch(name):
                    skip(BrokenRecord(entry.path, "foreign: the folder is not a trial's name"))
                elif kind is not None and name in trials:
                    self._found.setdefault(kind, []).append(entry)

    def of(self, kind: type[Record]) -> list[Entry]:
        return sorted(self._found.get(kind.kind, []), key=lambda entry: entry.path)


def _rows(columns: Columns) -> list[Row]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _frame(columns: Columns) -> pd.DataFrame:
    """Columns of plain objects: pandas' own string columns are slow to walk through, and dictionaries stay as read."""
    numbers = {"seed": "int64", "images": "int64", "accuracy": "float64", "epsilon_value": "float64"}
    return pd.DataFrame(
        {name: pd.Series(values, dtype=numbers.get(name, "object")) for name, values in columns.items()}
    )
