"""A store whose accuracies are chosen; verdicts follow from them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from reports.analysis.results import Results
from reports.papers import load as load_paper
from sweep.store.base import Store
from sweep.store.folder import FolderStore
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.manifest import PlannedAttack, PlannedCell
from tests import records
from trainers.attack import EvaluationAttack
from trainers.attacks import parse

PAPER = load_paper()
IMAGES = 1000
CURVE = ({"epoch": 0, "train_margin": -1.0}, {"epoch": 1, "train_margin": -2.0})
MADE_BY = {"versions": {"torch": "2.13.0"}, "commit": "abc", "device": "cpu", "command": "python -m sweep.run"}


class QuickStore(FolderStore):
    """Writes without waiting for the disk: a test's store need not survive a power cut."""

    def write(self, path: str, data: bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def results_of(store: Store | Path) -> Results:
    return Results.read(store)


def trial_hash(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def asked(*names: str) -> tuple[PlannedAttack, ...]:
    """Attacks as a manifest lists them."""
    attacks = map(parse, names)
    return tuple(PlannedAttack(id=attack.id, name=attack.name, epsilon=attack.epsilon) for attack in attacks)


def trained_on(labels: Iterable[str]) -> dict[str, dict[str, str]]:
    """As a manifest says it."""
    return {label: {"trains_on": "clean" if label == "st" else "attacked"} for label in labels}


def add_evaluation(
    store: Store, trial: str, attack: str | EvaluationAttack, accuracy: float, *, images: int = IMAGES, **changes: Any
) -> str:
    record = records.evaluation_record(trial, attack, accuracy, images=images, **changes)
    store.write_record(record)
    return record.path


def add_trial(store: Store, trial: str, **changes: Any) -> None:
    facts = {"config": records.trial_config(dataset="cifar10"), "curve": CURVE, "wall_seconds": 2.0, **MADE_BY}
    store.write_record(records.trial_record(trial, **{**facts, **changes}))


def add_diagnostics(
    store: Store, trial: str, summary: dict[str, float], arrays: dict[str, np.ndarray] | None = None, **changes: Any
) -> DiagnosticsRecord:
    if arrays is not None:
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
        changes = {"arrays_sha256": hashlib.sha256(content.getvalue()).hexdigest(), **changes}
    record = records.diagnostics_record(trial, summary=summary, **changes)
    if arrays is not None:
        store.write(record.arrays_path, content.getvalue())
    store.write_record(record)
    return record


def add_study(
    store: Store,
    name: str,
    accuracies: dict[str, list[float | None]],
    *,
    clean: float = 0.9,
    names: dict[str, str] | None = None,
    hyperparameters: dict[str, dict[str, Any]] | None = None,
    statuses: dict[tuple[str, int], str] | None = None,
    **changes: Any,
) -> dict[tuple[str, int], str]:
    """`accuracies` gives AutoAttack's per label and seed in [0, 1]; None leaves the trial out. PGD is 2 points up."""
    cells = []
    trials = {}
    for label, values in accuracies.items():
        method = label.partition(" ")[0]
        for seed, accuracy in enumerate(values):
            trial = trials[label, seed] = trial_hash(name, label, seed)
            used, shown = (hyperparameters or {}).get(label, {}), (names or {}).get(label, label.upper())
            cells.append(
                PlannedCell(label=label, display=shown, method=method, hyperparameters=used, seed=seed, trial=trial)
            )
            status = (statuses or {}).get((label, seed), "done")
            if accuracy is None:
                continue
            config = records.trial_config(dataset="cifar10", method=method, seed=seed)
            reason = None if status == "done" else "loss became NaN"
            add_trial(store, trial, config=config, status=status, reason=reason)
            if status == "done":
                add_evaluation(store, trial, "clean", clean, clean=clean)
                add_evaluation(store, trial, "pgd-20", accuracy + 0.02, clean=clean)
                add_evaluation(store, trial, "autoattack", accuracy, clean=clean, shift=7 * seed)
    facts: dict[str, Any] = {
        "title": f"Study {name}",
        "dataset": "cifar10",
        "model": "preact_resnet18",
        "seeds": sorted({one.seed for one in cells}),
        "cells": cells,
        "attacks": asked("clean", "pgd-20", "autoattack"),
        "config_by_label": {},
        "inner_attacks": trained_on(accuracies),
    }
    store.write_record(records.manifest(name, **{**facts, **changes}))
    return trials
