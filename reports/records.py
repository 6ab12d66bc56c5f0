"""The store's records as pandas frames. What is broken or foreign is listed as a problem and left out."""

from __future__ import annotations

import base64
import binascii
import io
import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sweep.errors import UserError
from sweep.store import BrokenRecord, Store, open_store

Record = dict[str, Any]
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
class Problem:
    """A record that was left out, and why."""

    path: str
    reason: str


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
        record = self.store.read_json(path)
        return unpack(record["verdicts"], int(record["images"]))

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
    evaluations = _evaluations(store, set(cells["trial"]), problems)
    searches = _searches(store, manifests, problems)
    diagnostics = frozenset(path for path in store.list("diagnostics/") if path.endswith(".json"))
    return ReportData(store, manifests, cells, evaluations, searches, problems, diagnostics)


def _read(store: Store, path: str, kind: str, problems: list[Problem]) -> Record | None:
    try:
        record = store.read_json(path)
    except BrokenRecord as fault:
        problems.append(Problem(path, fault.reason))
        return None
    except (OSError, ValueError) as fault:
        problems.append(Problem(path, str(fault)))
        return None
    if not isinstance(record, dict) or record.get("kind") != kind:
        problems.append(Problem(path, f"foreign: not a record of kind '{kind}'"))
        return None
    if record.get("format", 1) != 1:
        problems.append(Problem(path, f"foreign: format {record['format']!r}, this version reads 1"))
        return None
    return record


def _rows(build: Callable[[], Record], path: str, problems: list[Problem]) -> Record | None:
    """A record of the right kind may still lack a key or hold nonsense; that is a problem, not a crash."""
    try:
        return build()
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, binascii.Error) as fault:
        problems.append(Problem(path, f"broken: {type(fault).__name__}: {fault}"))
        return None


def _manifests(store: Store, problems: list[Problem]) -> dict[str, Record]:
    manifests = {}
    for path in sorted(store.list("studies/")):
        if not path.endswith(".json"):
            continue
        record = _read(store, path, "study", problems)
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
    trials: dict[str, Record] = {}
    rows = []
    for name, manifest in manifests.items():
        for cell in manifest["cells"]:
            path = f"studies/{name}.json"
            row = _rows(lambda cell=cell, name=name: _planned(name, cell), path, problems)  # type: ignore[misc]
            if row is None:
                continue
            trial = row["trial"]
            if trial not in trials and trial in stored:
                trials[trial] = _trial(store, trial, problems) or {}
            rows.append({**row, **trials.get(trial, {})})
    return pd.DataFrame(rows, columns=CELL_COLUMNS)


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


def _trial(store: Store, trial: str, problems: list[Problem]) -> Record | None:
    path = f"trials/{trial}/record.json"
    record = _read(store, path, "trial", problems)
    if record is None:
        return None

    def build() -> Record:
        if not str(record["trial"]).startswith(trial):
            raise ValueError(f"belongs to trial {str(record['trial'])[:16]}")
        if record["status"] not in ("done", "collapsed", "failed"):
            raise ValueError(f"unknown status {record['status']!r}")
        kept = ("status", "reason", "config", "checkpoints", "metrics", "versions", "commit", "device", "wall_seconds")
        row = {key: record.get(key) for key in (*kept, "command", "log")}
        curve = record.get("curve") or []
        row["last_epoch"] = dict(curve[-1]) if curve else {}
        return row

    return _rows(build, path, problems)


def _evaluations(store: Store, trials: set[str], problems: list[Problem]) -> pd.DataFrame:
    rows = []
    for path in sorted(store.list("evaluations/")):
        parts = path.split("/")
        # Deeper files are shards of an evaluation in progress.
        if len(parts) != 4 or not path.endswith(".json") or parts[1] not in trials:
            continue
        record = _read(store, path, "evaluation", problems)
        if record is not None:
            row = _rows(lambda path=path, record=record: _evaluation(path, record), path, problems)  # type: ignore[misc]
            if row is not None:
                rows.append(row)
    return pd.DataFrame(rows, columns=EVALUATION_COLUMNS)


def _evaluation(path: str, record: Record) -> Record:
    _, trial, checkpoint, name = path.split("/")
    if not str(record["trial"]).startswith(trial) or record["checkpoint"] != checkpoint:
        raise ValueError(f"belongs to {str(record['trial'])[:16]}/{record['checkpoint']}")
    images = int(record["images"])
    accuracy = float(record["accuracy"])
    counted = _count(record["verdicts"], images) / images
    if abs(counted - accuracy) > 0.5 / images:
        raise ValueError(f"accuracy {accuracy} is not that of its verdicts, {counted:.6g}")
    attack = record["attack"]
    return {
        "trial": trial,
        "checkpoint": checkpoint,
        "attack_id": name.removesuffix(".json"),
        "attack": str(attack["name"]),
        "epsilon": str(attack.get("epsilon", "")),
        "settings": attack,
        "images": images,
        "accuracy": counted,
        "clean_accuracy": _count(record["clean"], images) / images if record.get("clean") else None,
        "warnings": tuple(str(warning) for warning in record.get("warnings") or ()),
        "phases": {phase: _count(bits, images) / images for phase, bits in (record.get("phases") or {}).items()},
        "path": path,
    }


def _count(text: str, images: int) -> int:
    content = base64.b64decode(text, validate=True)
    if images < 1 or len(content) != (images + 7) // 8:
        raise ValueError(f"{len(content)} bytes of verdicts for {images} images")
    # np.packbits pads with zeros, so counting the bits of the bytes counts the images.
    return int.from_bytes(content, "big").bit_count()


def _searches(store: Store, manifests: dict[str, Record], problems: list[Problem]) -> dict[str, Record]:
    searches = {}
    for manifest in manifests.values():
        for entry in manifest.get("searches") or []:
            path = f"searches/{entry['id']}/record.json"
            if entry["id"] not in searches and store.exists(path):
                record = _read(store, path, "search", problems)
                if record is not None:
                    searches[str(entry["id"])] = record
    return searches
