"""The store's records as pandas frames. What is broken or foreign is listed as a problem and left out."""

from __future__ import annotations

import base64
import gc
import io
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports.store.reading import Found, read_record, read_trials
from reports.store.rows import EVALUATION_COLUMNS, Problem, Record
from sweep.errors import UserError
from sweep.store.base import Store, open_store

__all__ = ["Diagnostics", "Problem", "Record", "ReportData", "load", "unpack"]

TRIAL_FOLDER = re.compile(r"[0-9a-f]{16}")

CELL_COLUMNS = [
    *("study", "label", "display", "method", "hyperparameters", "seed", "trial", "status", "reason", "config"),
    *("checkpoints", "metrics", "last_epoch", "versions", "commit", "device", "wall_seconds", "command", "log"),
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
                 `settings` the attack's full description.
    Curves, diagnostics and verdicts of phases are read when asked for: a large store would not fit in memory.
    """

    store: Store
    manifests: dict[str, Record]
    cells: pd.DataFrame
    evaluations: pd.DataFrame
    searches: dict[str, Record] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _diagnostics: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _verdicts: dict[str, tuple[str, int]] = field(default_factory=dict)

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
        return unpack(*self._verdicts[path])

    def clean_verdicts(self, path: str) -> np.ndarray:
        record = self.store.read_json(path)
        return unpack(record["clean"], int(record["images"]))

    def phase_verdicts(self, path: str) -> dict[str, np.ndarray]:
        """AutoAttack: who is left after each phase, in the order of the attack."""
        record = self.store.read_json(path)
        return {name: unpack(bits, int(record["images"])) for name, bits in (record.get("phases") or {}).items()}

    def diagnostics(self, trial: str, checkpoint: str, study: str | None = None) -> Diagnostics | None:
        """Those with the settings that the study asks for, or else those on most images."""
        path = self._diagnostics_path(trial, checkpoint, study)
        record = self._diagnostics_record(path) if path else None
        if path is None or record is None:
            return None
        arrays: dict[str, np.ndarray] = {}
        try:
            if record.get("arrays"):
                content = self.store.read(f"diagnostics/{trial}/{record['arrays']}")
                with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                    arrays = {name: archive[name] for name in archive.files}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as fault:
            self._note(path, str(fault))
            return None
        return Diagnostics(record.get("summary") or {}, arrays)

    def diagnostics_summary(self, trial: str, checkpoint: str, study: str | None = None) -> Record:
        """The summary alone: tables need no arrays, which are megabytes for a full data set."""
        path = self._diagnostics_path(trial, checkpoint, study)
        record = self._diagnostics_record(path) if path else None
        return (record or {}).get("summary") or {}

    def _diagnostics_record(self, path: str) -> Record | None:
        found = read_record(self.store, path, "diagnostics")
        if isinstance(found, Problem):
            self._note(found.path, found.reason)
            return None
        return found

    def _diagnostics_path(self, trial: str, checkpoint: str, study: str | None) -> str | None:
        """Each file has its settings in its name: studies with different ones may share a trial."""
        paths = self._diagnostics.get((trial, checkpoint), [])
        if len(paths) < 2:
            return paths[0] if paths else None
        names = [study] if study else self.cells.loc[self.cells["trial"] == trial, "study"]
        evaluations = [self.manifests[name].get("study", {}).get("evaluation", {}) for name in names]
        asked = [(one.get("epsilon"), one.get("images")) for one in evaluations]

        def rank(path: str) -> tuple[bool, float]:
            found = self._diagnostics_record(path)
            if found is None:
                return False, -1.0
            images = (found.get("summary") or {}).get("images_train")
            return (found.get("epsilon"), found.get("images")) in asked, float(images or 0.0)

        return max(sorted(paths), key=rank)

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
    _note_foreign(store, problems)
    planned = _plan(manifests, problems)
    names = sorted({row["trial"] for row in planned if TRIAL_FOLDER.fullmatch(row["trial"])})
    with no_collection():
        found = read_trials(store, names)
        cells = _cells(planned, found)
        evaluations, verdicts = _evaluations(found)
    problems += sorted(found.problems, key=lambda problem: problem.path)
    searches = _searches(store, manifests, problems)
    diagnostics: dict[tuple[str, str], list[str]] = {}
    for path in store.list("diagnostics/"):
        if path.endswith(".json") and path.count("/") == 2:
            _, trial, name = path.split("/")
            diagnostics.setdefault((trial, name.removesuffix(".json").partition("-")[0]), []).append(path)
    return ReportData(store, manifests, cells, evaluations, searches, problems, diagnostics, verdicts)


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


@contextmanager
def no_collection() -> Iterator[None]:
    """Without looking for cycles: there are none among hundreds of thousands of rows, and each look takes longer."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _note_foreign(store: Store, problems: list[Problem]) -> None:
    folder = store.local("trials")
    if folder is None:
        names = {path.split("/")[1] for path in store.list("trials/")}
    else:
        names = set(os.listdir(folder)) if folder.is_dir() else set()
    for name in sorted(names):
        if not TRIAL_FOLDER.fullmatch(name) and store.exists(f"trials/{name}/record.json"):
            problems.append(Problem(f"trials/{name}/record.json", "foreign: the folder is not a trial's name"))


def _plan(manifests: dict[str, Record], problems: list[Problem]) -> list[Record]:
    """One row per study, label and seed, as the studies want them."""
    planned = []
    for name, manifest in manifests.items():
        for cell in manifest["cells"]:
            try:
                planned.append(_planned(name, cell))
            except (KeyError, TypeError, ValueError) as fault:
                problems.append(Problem(f"studies/{name}.json", f"broken cell: {type(fault).__name__}: {fault}"))
    return planned


def _cells(planned: list[Record], found: Found) -> pd.DataFrame:
    trials = {row["trial"]: row for row in found.trials}
    rows = [{**row, **trials.get(row["trial"], {})} for row in planned]
    return _frame({name: [row.get(name) for row in rows] for name in CELL_COLUMNS})


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


def _evaluations(found: Found) -> tuple[pd.DataFrame, dict[str, tuple[str, int]]]:
    """The frame, and by path the verdicts as stored: two kilobytes each, read once."""
    empty: list[tuple[Any, ...]] = [()] * (len(EVALUATION_COLUMNS) + 1)
    *columns, verdicts = zip(*found.evaluations, strict=True) if found.evaluations else empty
    frame = _frame(dict(zip(EVALUATION_COLUMNS, columns, strict=True)))
    stored = dict(zip(frame["path"], zip(verdicts, frame["images"], strict=True), strict=True))
    return frame, stored


def _frame(columns: dict[str, Sequence[Any]]) -> pd.DataFrame:
    """Columns of plain objects: pandas' own string columns are slow to walk through, and dictionaries stay as read."""
    numbers = {"seed": "int64", "images": "int64", "accuracy": "float64"}
    return pd.DataFrame(
        {name: pd.Series(values, dtype=numbers.get(name, "object")) for name, values in columns.items()}
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
