"""Records made by hand, and a store of them: accuracies are chosen, verdicts follow from them."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from reports.papers import load as load_paper
from reports.results import Results
from sweep.store.base import FolderStore, Store, open_store

PAPER = load_paper()
IMAGES = 1000
ATTACKS = {"clean": "clean-00000000", "pgd-20": "pgd-20-8_255-11111111", "autoattack": "autoattack-8_255-22222222"}


class QuickStore(FolderStore):
    """Writes without waiting for the disk: a test's store need not survive a power cut."""

    def write(self, path: str, data: bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def new_store(folder: Path) -> FolderStore:
    store = open_store(folder)
    assert isinstance(store, FolderStore)
    return store


def results_of(store: Store | Path) -> Results:
    return Results.read(store)


def trial_hash(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def bits(accuracy: float, images: int = IMAGES, shift: int = 0) -> str:
    """The first images survive; `shift` rotates which ones, so that two models can differ on single images."""
    verdicts = np.roll(np.arange(images) < round(accuracy * images), shift)
    return base64.b64encode(np.packbits(verdicts).tobytes()).decode()


def trial_record(trial: str, config: dict[str, Any], status: str = "done", **more: Any) -> dict[str, Any]:
    return {
        "kind": "trial",
        "format": 1,
        "trial": trial,
        "config": config,
        "numerics": 1,
        "status": status,
        "reason": None if status == "done" else "loss became NaN",
        "curve": [{"epoch": 0, "train_margin": -1.0}, {"epoch": 1, "train_margin": -2.0}],
        "checkpoints": {"best_test": {"epoch": 1, "sha256": "00", "bytes": 1}},
        "metrics": {},
        "versions": {"torch": "2.13.0"},
        "commit": "abc",
        "device": "cpu",
        "wall_seconds": 2.0,
        "steps": 2,
        "command": "python -m sweep.run",
    } | more


def evaluation_record(
    trial: str,
    attack: str,
    accuracy: float,
    *,
    checkpoint: str = "best_test",
    epsilon: str = "8/255",
    images: int = IMAGES,
    clean: float = 0.9,
    shift: int = 0,
    **more: Any,
) -> dict[str, Any]:
    return {
        "kind": "evaluation",
        "format": 1,
        "trial": trial,
        "checkpoint": checkpoint,
        "attack": {"name": attack, "epsilon": "0" if attack == "clean" else epsilon},
        "images": images,
        "verdicts": bits(accuracy, images, shift),
        "clean": bits(clean, images),
        "phases": {},
        "accuracy": round(accuracy * images) / images,
        "warnings": [],
        "versions": {},
        "commit": None,
        "device": "cpu",
        "wall_seconds": 1.0,
    } | more


def cell(
    label: str, seed: int, trial: str, hyperparameters: dict[str, Any], display: str = "", method: str = ""
) -> dict[str, Any]:
    """One of a manifest."""
    return {
        "label": label,
        "display": display or label.upper(),
        "method": method or label,
        "hyperparameters": hyperparameters,
        "seed": seed,
        "trial": trial,
    }


def manifest(name: str, cells: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "kind": "study",
        "format": 1,
        "name": name,
        "title": f"Study {name}",
        "study": {},
        "dataset": "cifar10",
        "model": "preact_resnet18",
        "epsilon": "8/255",
        "protocol": "paper",
        "checkpoint": "best_test",
        "seeds": sorted({one["seed"] for one in cells}),
        "cells": cells,
        "searches": [],
        "attacks": [],
        "config_by_label": {},
    } | more


def add_evaluation(
    store: Store, trial: str, attack: str, accuracy: float, *, attack_id: str | None = None, **more: Any
) -> str:
    record = evaluation_record(trial, attack, accuracy, **more)
    name = attack_id or ATTACKS.get(attack, f"{attack}-33333333")
    path = f"evaluations/{trial[:16]}/{record['checkpoint']}/{name}.json"
    store.write_json(path, record)
    return path


def add_trial(store: Store, trial: str, config: dict[str, Any], status: str = "done", **more: Any) -> None:
    store.write_trial_record(trial_record(trial, config, status, **more))


def add_study(
    store: Store,
    name: str,
    accuracies: dict[str, list[float | None]],
    *,
    clean: float = 0.9,
    displays: dict[str, str] | None = None,
    hyperparameters: dict[str, dict[str, Any]] | None = None,
    statuses: dict[tuple[str, int], str] | None = None,
    **more: Any,
) -> dict[tuple[str, int], str]:
    """`accuracies` gives AutoAttack's per label and seed in [0, 1]; None leaves the trial out. PGD is 2 points up."""
    cells = []
    trials = {}
    for label, values in accuracies.items():
        method = label.partition(" ")[0]
        for seed, accuracy in enumerate(values):
            trial = trials[label, seed] = trial_hash(name, label, seed)
            used, shown = (hyperparameters or {}).get(label, {}), (displays or {}).get(label, "")
            cells.append(cell(label, seed, trial, used, shown, method))
            status = (statuses or {}).get((label, seed), "done")
            if accuracy is None:
                continue
            add_trial(store, trial, {"dataset": "cifar10", "method": method, "seed": seed}, status)
            if status == "done":
                add_evaluation(store, trial, "clean", clean, clean=clean)
                add_evaluation(store, trial, "pgd-20", accuracy + 0.02, clean=clean)
                add_evaluation(store, trial, "autoattack", accuracy, clean=clean, shift=7 * seed)
    asked = [{"id": value, "name": key, "epsilon": "8/255"} for key, value in ATTACKS.items()]
    store.write_manifest({**manifest(name, cells), "attacks": asked, **more})
    return trials
