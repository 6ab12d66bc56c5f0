"""The store's records as pandas frames. What is broken or foreign is listed as a problem and left out."""

from __future__ import annotations

import base64
import io
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from reports.reading import Problem, Record, read_record, read_rows
from sweep.errors import UserError
from sweep.store import BrokenRecord, Store, open_store

__all__ = ["Diagnostics", "Problem", "Record", "ReportData", "load", "unpack"]

TRIAL_FOLDER = re.compile(r"[0-9a-f]{16}")

CELL_COLUMNS = [
    *("study", "label", "display", "method", "hyperparameters", "seed", "trial", "status", "reason", "config"),
    *("checkpoints", "metrics", "last_epoch", "versions", "commit", "device", "wall_seconds", "command", "log"),
]
EVALUATION_COLUMNS = [
    *("trial", "checkpoint", "attack_id", "attack", "epsilon", "settings", "images", "accuracy", "clean_accuracy"),
    *("warnings", "phases", "path"),
]


@dataclass(frozen=True)
class Diagnostics:
    summary: Record
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True)
class ReportData:
    """All that tables, tests, figures and the page are made from.

    cells        one row per study, label and seed, whether run or not. `trial` is the folder name (16 hex digits),
                 `status` one of waiting (for a search), missing, done, collapsed, failed; `last_epoch` the last row
                 of the curve.
    evaluations  one row per trial, checkpoint and attack. Accuracies are in [0, 1]; `epsilon` is text such as 8/255;
                 `settings` the attack's full description; `phases` the accuracy after each AutoAttack phase.
    Curves, verdicts and diagnostics are read when asked for: a large store would not fit in memory.
    """

    store: Store
    manifests: dict[str, Record]
    cells: pd.DataFrame
    evaluations: pd.DataFrame
    searches: dict[str, Record] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _diagnostics: frozenset[str] = frozenset()
    _packed: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    def headline(self, study: str) -> str:
        """The checkpoint that the study's tables show unless another is asked for."""
        return str(self.manifests[study]["checkpoint"])

    def curve(self, trial: str) -> pd.DataFrame:
        """One row per epoch; empty when the trial has no record."""
        path = f"trials/{trial}/record.json"
        if not self.store.exists(path):
            return pd.DataFrame()
        return pd.DataFrame(self.store.read_json(path).get("curve") or [])

    def verdicts(self, path: str) -> np.ndarray:
        """Per test image: does the model survive the attack? `path` is a row of `evaluations`."""
        packed, images = self._packed[path]
        return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=images).astype(bool)

    def clean_verdicts(self, path: str) -> np.ndarray:
        record = self.store.read_json(path)
        return unpack(record["clean"], int(record["images"]))

    def phase_verdicts(self, path: str) -> dict[str, np.ndarray]:
        """AutoAttack: who is left after each phase, in the order of the attack."""
        record = self.store.read_json(path)
        return {name: unpack(bits, int(record["images"])) for name, bits in (record.get("phases") or {}).items()}

    def diagnostics(self, trial: str, checkpoint: str) -> Diagnostics | None:
        path = f"diagnostics/{trial}/{checkpoint}.json"
        if path not in self._diagnostics:
            return None
        try:
            record = self.store.read_json(path)
            arrays: dict[str, np.ndarray] = {}
            if record.get("arrays"):
                content = self.store.read(f"diagnostics/{trial}/{record['arrays']}")
                with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                    arrays = {name: archive[name] for name in archive.files}
        except (BrokenRecord, OSError, ValueError, KeyError, zipfile.BadZipFile) as fault:
            self._note(path, str(fault))
            return None
        return Diagnostics(record.get("summary") or {}, arrays)

    def _note(self, path: str, reason: str) -> None:
        problem = Problem(path, reason)
        if problem not in self.problems:
            self.problems.append(problem)


def unpack(text: str, images: int) -> np.ndarray:
    """The booleans behind base64 of np.packbits."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8), count=images)
    return bits.astype(bool)


def load(store: Store | str | Path, studies: Iterable[str] | None = None) -> ReportData:
    """The records of the named studies, or of all studies in the store."""
    if isinstance(store, str | Path):
        store = open_store(store)
        folder = store.local("")
        if folder is not None and not folder.is_dir():
            raise UserError(f"there is no store at {store.uri}; --store names its place, python -m sweep.run makes one")
    problems: list[Problem] = []
    manifests = _manifests(store, problems)
    if studies is not None:
        wanted = list(dict.fromkeys(studies))
        absent = [name for name in wanted if name not in manifests]
        if absent:
            known = ", ".join(sorted(manifests)) or "none"
            raise UserError(f"the store has no study {', '.join(map(repr, absent))}; it has: {known}")
        manifests = {name: manifests[name] for name in wanted}
    cells = _cells(store, manifests, problems)
    evaluations, packed = _evaluations(store, set(cells["trial"]), problems)
    searches = _searches(store, manifests, problems)
    diagnostics = frozenset(path for path in store.list("diagnostics/") if path.endswith(".json"))
    return ReportData(store, manifests, cells, evaluations, searches, problems, diagnostics, packed)


def _keep(found: Record | Problem, problems: list[Problem]) -> Record | None:
    if isinstance(found, Problem):
        problems.append(found)
        return None
    return found


def _manifests(store: Store, problems: list[Problem]) -> dict[str, Record]:
    manifests = {}
    for path in store.list("studies/"):
        if not path.endswith(".json"):
            continue
        record = _keep(read_record(store, path, "study"), problems)
        if record is None:
            continue
        lacking = [key for key in ("name", "dataset", "model", "checkpoint", "cells", "seeds") if key not in record]
        if lacking:
            problems.append(Problem(path, f"broken: lacks {', '.join(lacking)}"))
        else:
            manifests[str(record["name"])] = record
    return manifests


def _cells(store: Store, manifests: dict[str, Record], problems: list[Problem]) -> pd.DataFrame:
    stored = {path.split("/")[1] for path in store.list("trials/") if path.endswith("/record.json")}
    for folder in sorted(stored):
        if not TRIAL_FOLDER.fullmatch(folder):
            problems.append(Problem(f"trials/{folder}/record.json", "foreign: the folder is not a trial's name"))
    planned = []
    for name, manifest in manifests.items():
        for cell in manifest["cells"]:
            try:
                planned.append(_planned(name, cell))
            except (KeyError, TypeError, ValueError) as fault:
                problems.append(Problem(f"studies/{name}.json", f"broken cell: {type(fault).__name__}: {fault}"))
    wanted = dict.fromkeys(row["trial"] for row in planned if row["trial"] in stored)
    trials = {}
    for found in read_rows(store, [f"trials/{trial}/record.json" for trial in wanted], "trial"):
        row = _keep(found, problems)
        if row is not None:
            trials[row["trial"]] = row
    return _frame([{**row, **trials.get(row["trial"], {})} for row in planned], CELL_COLUMNS)


def _planned(study: str, cell: Record) -> Record:
    return {
        "study": study,
        "label": str(cell["label"]),
        "display": str(cell.get("display") or cell["label"]),
        "method": str(cell["method"]),
        "hyperparameters": dict(cell.get("hyperparameters") or {}),
        "seed": int(cell["seed"]),
        # None while a search has still to choose the hyperparameters.
        "trial": str(cell["trial"] or "")[:16],
        "status": "missing" if cell["trial"] else "waiting",
    }


def _evaluations(
    store: Store, trials: set[str], problems: list[Problem]
) -> tuple[pd.DataFrame, dict[str, tuple[bytes, int]]]:
    """The frame, and by path the verdicts as packed bytes: two kilobytes each, read once."""
    paths = []
    for path in store.list("evaluations/"):
        parts = path.split("/")
        # Deeper files are shards of an evaluation in progress.
        if len(parts) == 4 and path.endswith(".json") and parts[1] in trials:
            paths.append(path)
    rows = []
    packed = {}
    for found in read_rows(store, paths, "evaluation"):
        row = _keep(found, problems)
        if row is not None:
            rows.append(row)
            packed[row["path"]] = (row["packed"], row["images"])
    return _frame(rows, EVALUATION_COLUMNS), packed


def _frame(rows: list[Record], columns: list[str]) -> pd.DataFrame:
    """Columns of plain objects: pandas' own string columns are slow to walk through, and dictionaries stay as read."""
    numbers = {"seed": "int64", "images": "int64", "accuracy": "float64"}
    return pd.DataFrame(
        {name: pd.Series([row.get(name) for row in rows], dtype=numbers.get(name, "object")) for name in columns}
    )


def _searches(store: Store, manifests: dict[str, Record], problems: list[Problem]) -> dict[str, Record]:
    searches = {}
    for manifest in manifests.values():
        for entry in manifest.get("searches") or []:
            path = f"searches/{entry['id']}/record.json"
            if entry["id"] not in searches and store.exists(path):
                record = _keep(read_record(store, path, "search"), problems)
                if record is not None:
                    searches[str(entry["id"])] = record
    return searches
