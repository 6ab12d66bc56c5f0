"""The study that is disturbed, and what an undisturbed run of it leaves."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from reports import write_reports
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.encoding import BrokenRecord
from sweep.store.opening import open_store
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.search import CandidateRecord, SearchRecord
from sweep.store.records.trial import TrialRecord
from tests.sweep.tiny_study import TINY

# A search of two generations with pruned candidates, trainings, AutoAttack in phases and diagnostics: a second of work.
# About half of the images survive the attacks at the study's radius, so that a table has something to differ in;
# AutoAttack has one that its first component defeats, which spares the long last ones. Every attack has two chunks,
# which several drivers share.
STUDY: dict[str, Any] = {
    **TINY,
    "title": "Chaos",
    "name": "chaos",
    "seeds": [0],
    "train_images": 128,
    "test_images": 32,
    "train": {**TINY["train"], "epochs": 2, "learning_rate": 0.1},
    "selection": {**TINY["selection"], "validation": 16},
    "search": {
        "sovr": {
            **TINY["search"]["sovr"],
            "epochs": 3,
            "train": {"schedule": {"kind": "piecewise_epoch", "at": [2], "factors": [0.4]}},
        }
    },
    "evaluation": {
        "attacks": ["clean", "pgd-5", "apgd-ce", "autoattack*6"],
        "epsilon": "0.05",
        "images": 16,
        "batch_size": 8,
        "shards": 2,
        "diagnostics": True,
    },
}
TABLES = ("tables.md", "tables.tex", "tables.csv", "numbers.tex")


@dataclass(frozen=True)
class Reference:
    """An undisturbed run: its folder with the study file and the store, what it found, and how long it took."""

    folder: Path
    study: Path
    outcome: dict[str, Any]
    tables: dict[str, bytes]
    primitives: int  # replaces, unlinks and exclusive creates of a whole run
    seconds: float

    @property
    def store(self) -> Path:
        return self.folder / "store"


def write_study(folder: Path) -> Path:
    path = folder / "chaos.yaml"
    path.write_text(yaml.safe_dump(STUDY))
    return path


def outcome(uri: str | Path, *, whole: bool = True) -> dict[str, Any]:
    """Every result of a store without when and where it was computed; a record that is broken says so.

    Without `whole` only those that a finished study's tables are made of.
    """
    store = open_store(uri)
    found: dict[str, Any] = {}
    kinds = (TrialRecord, EvaluationRecord, SearchRecord, DiagnosticsRecord, *((CandidateRecord,) if whole else ()))
    cells = [cell for manifest in store.manifests(lambda _: None).values() for cell in manifest.cells]
    shown = {layout.trial_record(cell.trial) for cell in cells if cell.trial}
    for kind in kinds:
        for path in store.record_paths(kind):
            if kind is TrialRecord and not whole and path not in shown:
                continue  # a candidate of a search that has chosen
            try:
                found[path] = _facts(store, store.record(kind, path), whole)
            except (BrokenRecord, OSError) as fault:
                found[path] = f"broken: {fault}"
    return found


def tables(store: str | Path, out: Path) -> dict[str, bytes]:
    write_reports(store, None, out, figures=False)
    return {name: (out / name).read_bytes() for name in TABLES}


def final_records(folder: Path) -> dict[str, int]:
    """Intact records of results, each with its inode: one that is written again has another."""
    store = open_store(folder)
    found = {}
    for kind in (TrialRecord, EvaluationRecord, CandidateRecord, DiagnosticsRecord):
        for path in store.record_paths(kind):
            if store.usable(kind, path) is not None:
                found[path] = (folder / path).stat().st_ino
    return found


def _facts(store: Store, record: Any, whole: bool) -> Any:
    if isinstance(record, TrialRecord):
        curve = [{key: value for key, value in row.items() if key != "seconds"} for row in record.curve]
        weights = {
            name: hashlib.sha256(store.read(layout.weights(record.trial, name))).hexdigest() == kept.sha256
            for name, kept in record.checkpoints.items()
            if whole and store.exists(layout.weights(record.trial, name))
        }
        return record.status, curve, record.checkpoints, record.metrics, weights
    if isinstance(record, EvaluationRecord):
        proof = record.counterexamples if whole else None
        proven = proof and hashlib.sha256(store.read(record.counterexamples_path)).hexdigest() == proof.sha256
        return record.verdicts, record.clean, record.phases, record.accuracy, proof, proven
    if isinstance(record, SearchRecord):
        return record.candidates, record.chosen, record.reason, record.status
    if isinstance(record, CandidateRecord):
        return [{key: value for key, value in row.items() if key != "seconds"} for row in record.curve]
    arrays = store.exists(record.arrays_path) and (
        hashlib.sha256(store.read(record.arrays_path)).hexdigest() == record.arrays_sha256
    )
    return record.summary, record.arrays_sha256, arrays
