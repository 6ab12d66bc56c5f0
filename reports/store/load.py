"""Load the records of a store as pandas frames. Broken and foreign records are listed as problems and left out."""

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
    FrameRow,
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
    """A record that was left out, with the reason."""

    path: str
    reason: str


@dataclass(frozen=True)
class Diagnostics:
    """The diagnostics of one checkpoint: the summary, and arrays with one value per image."""

    summary: dict[str, float | None]
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True)
class ReportData:
    """The records that tables, tests, figures and the page are made from.

    cells        one row per study, label and seed, whether run or not. `trial` is the folder name (16 hex digits),
                 `status` one of waiting (for a search), missing, done, collapsed, failed; `last_epoch` the last row
                 of the curve.
    evaluations  one row per trial, checkpoint and attack. Accuracies are in [0, 1]; `epsilon` is text such as 8/255;
                 `settings` the attack's full description.
    Curves, diagnostics and verdicts are read on demand, because those of a large store do not fit in memory.
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
        """Return the command that runs the study again in this store, with the options of its last run."""
        manifest = self.manifests.get(study)
        return commands.run(study, manifest.command if manifest else None, self.store.uri, *words)

    def decide_command(self, study: str, claim: str) -> str:
        """Return the command that decides a claim about two labels of the study."""
        manifest = self.manifests.get(study)
        return commands.decide(study, manifest.command if manifest else None, self.store.uri, claim)

    def suite_command(self, study: str, suite: str) -> str:
        """Return the command that evaluates the study by this suite instead of the attacks that it lists."""
        manifest = self.manifests.get(study)
        instead = ["--set", "evaluation.attacks=[]"] if manifest and manifest.evaluation.attacks else []
        return self.run_command(study, *instead, "--set", f"evaluation.suite={suite}")

    def headline(self, study: str) -> str:
        """Return the checkpoint that the study's tables show by default."""
        return self.manifests[study].checkpoint

    def curve(self, trial: str) -> pd.DataFrame:
        """Return one row per epoch; empty if the trial has no record."""
        record = self._record(TrialRecord, layout.trial_record(trial))
        return pd.DataFrame(record.curve if record else [])

    def verdicts(self, path: str) -> np.ndarray:
        """Return, for each test image, whether the model survives the attack; empty if the record is gone.

        path: of a row of `evaluations`.
        """
        record = self._record(EvaluationRecord, path)
        return record.survivors if record else np.zeros(0, dtype=bool)

    def distances(self, path: str) -> np.ndarray:
        """Return, for each test image, the distance at which the model was fooled.

        Empty if the record is gone, or if the attack does not search for the smallest distance.
        """
        record = self._record(EvaluationRecord, path)
        return np.zeros(0) if record is None or record.distances is None else record.fooled_at

    def settings(self, path: str) -> dict[str, Any]:
        """Return the full description of the attack of such a row."""
        return self._settings[path]

    def phase_verdicts(self, path: str) -> dict[str, np.ndarray]:
        """Return which test images survive each phase of AutoAttack, in the order of the attack."""
        record = self._record(EvaluationRecord, path)
        return {name: unpack(bits, record.images) for name, bits in record.phases.items()} if record else {}

    def diagnostics(self, trial: str, checkpoint: str, study: str | None = None) -> Diagnostics | None:
        """Return the diagnostics with the settings that the study asks for, or else those on most images."""
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
        except Exception as fault:  # damage raises a dozen types, and one file must not prevent the report
            self._note(BrokenRecord(record.path, str(fault) or type(fault).__name__))
            return None

    def diagnostics_summary(self, trial: str, checkpoint: str, study: str | None = None) -> dict[str, float | None]:
        """Return the summary alone. Tables need no arrays, which are megabytes for a full data set."""
        record = self._diagnostics_record(trial, checkpoint, study)
        return record.summary if record else {}

    @property
    def has_transfers(self) -> bool:
        """Return whether counterexamples were tried on other models."""
        return bool(self._transfers)

    def transfers(self, trial: str, checkpoint: str, norm: str, epsilon: str) -> TransferRecord | None:
        """Return the results of other models' counterexamples on this model; None if its weights have changed since."""
        path = layout.transfer_record(trial, checkpoint, norm, epsilon)
        record = self._record(TransferRecord, path) if path in self._transfers else None
        return record if record is not None and record.weights == self._weights.get((trial, checkpoint)) else None

    @cached_property
    def _weights(self) -> dict[tuple[str, str], str]:
        """Return the SHA-256 of the weights by trial and checkpoint."""
        rows = zip(self.cells["trial"], self.cells["checkpoints"], strict=True)
        return {
            (trial, name): checkpoint["sha256"]
            for trial, checkpoints in rows
            if checkpoints
            for name, checkpoint in checkpoints.items()
        }

    def _diagnostics_record(self, trial: str, checkpoint: str, study: str | None) -> DiagnosticsRecord | None:
        """Return the record with the settings that the study, or one of the trial's studies, asks for.

        Without such a record, return the one on most images.
        """
        paths = self._diagnostics.get((trial, checkpoint), [])
        records = list(self.store.records(DiagnosticsRecord, sorted(paths), self._note))
        if len(records) < 2:
            return records[0] if records else None
        names = [study] if study else list(self.cells.loc[self.cells["trial"] == trial, "study"])
        manifests = [self.manifests[name] for name in names]
        wanted = [(manifest.norm, manifest.evaluation.epsilon, manifest.evaluation.images) for manifest in manifests]
        return max(
            records,
            key=lambda record: (
                (record.norm, record.epsilon, record.images) in wanted,
                float(record.summary.get("images_train") or 0.0),
            ),
        )

    def _record(self, kind: type[AnyRecord], path: str) -> AnyRecord | None:
        """Return a record; None if it is gone or has become broken since the store was listed."""
        return next(self.store.records(kind, [path], self._note), None)

    def _note(self, fault: BrokenRecord) -> None:
        problem = Problem(fault.path, fault.reason)
        if problem not in self.problems:
            self.problems.append(problem)


def load(store: Store | str | Path, studies: Iterable[str] | None = None, cache: Path | None = None) -> ReportData:
    """Load the records of some studies, or of all in the store if `studies` is None.

    cache: a folder for rows that were read before.
    """
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
            names = ", ".join(sorted(manifests)) or "none"
            raise UserError(f"the store has no study {', '.join(map(repr, absent))}; it has: {names}")
        manifests = {name: manifests[name] for name in wanted if name in manifests}
    planned = [planned_row(name, cell) for name, manifest in manifests.items() for cell in manifest.cells]
    paths = [path for path in opened.record_paths(RowRecord) if path.split("/")[1] in manifests]
    outside = list(opened.records(RowRecord, paths, skip))
    planned += map(outside_row, outside)
    trials = {row["trial"] for row in planned}
    entries = _Entries(opened, trials, skip)
    rows = RowCache(cache)
    with no_collection():
        outcomes = rows.columns(opened, TrialRecord, entries.of(TrialRecord), trial_row, skip)
        evaluations = rows.columns(opened, EvaluationRecord, entries.of(EvaluationRecord), evaluation_row, skip)
        if OUTSIDE in evaluations.get("checkpoint", ()):
            repeated = with_outside(_rows(evaluations), [(record, manifests[record.study]) for record in outside])
            evaluations = {name: [row[name] for row in repeated] for name in evaluations}
        by_trial = {row["trial"]: row for row in _rows(outcomes)}
        joined = [_outcome(row, by_trial.get(row["trial"], {})) for row in planned]
        cells = _frame({name: [row.get(name) for row in joined] for name in CELL_COLUMNS})
        frame = _frame({name: evaluations.get(name, []) for name in EVALUATION_COLUMNS})
    searches = {entry.id for manifest in manifests.values() for entry in manifest.searches}
    records = opened.records(SearchRecord, sorted(map(layout.search_record, searches)), skip)
    paths = [path for path in opened.record_paths(DecisionRecord) if path.split("/")[1] in manifests]
    decisions = tuple(opened.records(DecisionRecord, paths, skip))
    diagnostics: dict[tuple[str, str], list[str]] = {}
    for entry in entries.of(DiagnosticsRecord):
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
        frozenset(entry.path for entry in entries.of(TransferRecord)),
    )


def _outcome(planned: FrameRow, trained: FrameRow) -> FrameRow:
    """Join a planned row with what became of it. A row from outside keeps its own values."""
    return {**trained, **planned} if planned["method"] == OUTSIDE else {**planned, **trained}


def broken_manifests(store_uri: str | Path, studies: Iterable[str] | None = None) -> list[Problem]:
    """Return the unusable manifests of the named studies, or of all studies. No table shows these studies."""
    wanted = None if studies is None else set(map(layout.manifest, studies))
    faults: list[BrokenRecord] = []
    existing_store(store_uri).manifests(faults.append)
    return [Problem(fault.path, fault.reason) for fault in faults if wanted is None or fault.path in wanted]


class _Entries:
    """The listed records of some trials, by kind."""

    def __init__(self, store: Store, trials: set[str], skip: Any) -> None:
        self._by_kind: dict[str, list[Entry]] = {}
        for folder in (layout.TRIALS, layout.EVALUATIONS, layout.DIAGNOSTICS, layout.TRANSFERS):
            for entry in store.entries(folder):
                kind = layout.kind_at(entry.path)
                name = entry.path.split("/")[1]
                if kind == TrialRecord.kind and not layout.SHORT_NAME.fullmatch(name):
                    skip(BrokenRecord(entry.path, "foreign: the folder is not a trial's name"))
                elif kind is not None and name in trials:
                    self._by_kind.setdefault(kind, []).append(entry)

    def of(self, kind: type[Record]) -> list[Entry]:
        return sorted(self._by_kind.get(kind.kind, []), key=lambda entry: entry.path)


def _rows(columns: Columns) -> list[FrameRow]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _frame(columns: Columns) -> pd.DataFrame:
    """Return a frame of plain objects.

    pandas' own string columns are slow to iterate over, and dictionaries stay as they were read.
    """
    numbers = {"seed": "int64", "images": "int64", "accuracy": "float64", "epsilon_value": "float64"}
    return pd.DataFrame(
        {name: pd.Series(values, dtype=numbers.get(name, "object")) for name, values in columns.items()}
    )
