"""A store with hand-made records: accuracies are chosen, verdicts follow from them."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from sweep.store.base import FolderStore, Store, open_store

IMAGES = 1000
ATTACKS = {"clean": "clean-00000000", "pgd-20": "pgd-20-8_255-11111111", "autoattack": "autoattack-8_255-22222222"}


def trial_hash(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def bits(accuracy: float, images: int = IMAGES, shift: int = 0) -> str:
    """The first images survive; `shift` rotates which ones, so that two models can differ on single images."""
    verdicts = np.roll(np.arange(images) < round(accuracy * images), shift)
    return base64.b64encode(np.packbits(verdicts).tobytes()).decode()


def add_evaluation(
    store: Store,
    trial: str,
    attack: str,
    accuracy: float,
    *,
    checkpoint: str = "best_test",
    epsilon: str = "8/255",
    attack_id: str | None = None,
    images: int = IMAGES,
    warnings: tuple[str, ...] = (),
    clean: float = 0.9,
    shift: int = 0,
) -> str:
    path = f"evaluations/{trial[:16]}/{checkpoint}/{attack_id or ATTACKS.get(attack, attack + '-33333333')}.json"
    record = {
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
        "warnings": list(warnings),
        "versions": {},
        "commit": None,
        "device": "cpu",
        "wall_seconds": 1.0,
    }
    store.write_json(path, record)
    return path


def add_trial(store: Store, trial: str, config: dict[str, Any], status: str = "done", **more: Any) -> None:
    record = {
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
    store.write_trial_record(record)


def add_study(
    store: Store,
    name: str,
    accuracies: dict[str, list[float | None]],
    *,
    clean: float = 0.9,
    displays: dict[str, str] | None = None,
    hyperparameters: dict[str, dict[str, Any]] | None = None,
    statuses: dict[tuple[str, int], str] | None = None,
    **manifest: Any,
) -> dict[tuple[str, int], str]:
    """`accuracies` gives AutoAttack's per label and seed in [0, 1]; None leaves the trial out. PGD is 2 points up."""
    cells = []
    trials = {}
    seeds = max(map(len, accuracies.values()))
    for label, values in accuracies.items():
        for seed, accuracy in enumerate(values):
            trial = trials[label, seed] = trial_hash(name, label, seed)
            used = (hyperparameters or {}).get(label, {})
            shown = (displays or {}).get(label, label.upper())
            method = label.partition(" ")[0]
            cells.append(
                {
                    "label": label,
                    "display": shown,
                    "method": method,
                    "hyperparameters": used,
                    "seed": seed,
                    "trial": trial,
                }
            )
            status = (statuses or {}).get((label, seed), "done")
            if accuracy is None:
                continue
            add_trial(store, trial, {"dataset": "cifar10", "method": method, "seed": seed}, status)
            if status == "done":
                shift = 7 * seed
                add_evaluation(store, trial, "clean", clean, clean=clean)
                add_evaluation(store, trial, "pgd-20", accuracy + 0.02, clean=clean)
                add_evaluation(store, trial, "autoattack", accuracy, clean=clean, shift=shift)
    record = {
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
        "seeds": list(range(seeds)),
        "cells": cells,
        "searches": [],
        "attacks": [{"id": value, "name": key, "epsilon": "8/255"} for key, value in ATTACKS.items()],
        "config_by_label": {},
    } | manifest
    store.write_manifest(record)
    return trials


def new_store(folder: Path) -> FolderStore:
    store = open_store(folder)
    assert isinstance(store, FolderStore)
    return store
