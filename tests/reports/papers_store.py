"""A store whose records have exactly the paper's printed means and spreads: three seeds at mean - s, mean, mean + s."""

from __future__ import annotations

import base64
from collections import defaultdict
from pathlib import Path

import numpy as np
from hand_made import new_store, trial_hash

from reports.papers import sovr as published
from reports.tables.table import Key
from sweep.store.encoding import encode

IMAGES = 10_000
LABELS = {0.5: "sovr_lam05", 0.6: "sovr_lam06"}
NO_ATTACK = ("worst", "margin", "margin_ratio")


def label_of(key: Key) -> str:
    if key.study == "cifar100_lambda":
        return LABELS.get(dict(key.hyperparameters).get("lam"), key.label)
    return key.label


def first_printed() -> dict[tuple[str, str, str, str | None], published.Printed]:
    """Each distinct cell with the first table that prints it."""
    cells: dict[tuple[str, str, str, str | None], published.Printed] = {}
    for table in published.tables():
        for printed in table.cells():
            key = printed.key
            cells.setdefault((key.study, label_of(key), key.measure, key.epsilon), printed)
    return cells


def write_papers_store(folder: Path) -> None:
    """Written straight to files: a thousand fsyncs would take longer than the test."""
    new_store(folder)
    studies: dict[str, dict[str, dict]] = defaultdict(lambda: defaultdict(dict))
    for (study, label, measure, epsilon), printed in first_printed().items():
        studies[study][label][measure, epsilon] = printed
    for study, labels in studies.items():
        cells = []
        if study.startswith("trajectories"):
            labels["at"] = {}
        for label, numbers in labels.items():
            used = next((dict(printed.key.hyperparameters) for printed in numbers.values()), {})
            for seed in range(3):
                trial = trial_hash(study, label, seed)
                method = "sovr" if label.startswith("sovr_") else label
                shown = {"label": label, "display": label.upper(), "method": method, "hyperparameters": used}
                cells.append({**shown, "seed": seed, "trial": trial})
                _write_trial(folder, trial, numbers, seed)
        manifest = {
            **{"kind": "study", "format": 1, "name": study, "title": study, "study": {}, "dataset": "cifar10"},
            **{"model": "preact_resnet18", "epsilon": "8/255", "protocol": "paper", "checkpoint": "best_test"},
            **{"seeds": [0, 1, 2], "cells": cells, "searches": [], "attacks": [], "config_by_label": {}},
        }
        _write(folder / "studies" / f"{study}.json", manifest)


def _write_trial(folder: Path, trial: str, numbers: dict, seed: int) -> None:
    margin = -1.0
    for (measure, epsilon), printed in numbers.items():
        spread = printed.sample.std if printed.sample.spread_known else 0.0
        value = printed.sample.mean + (seed - 1) * spread
        if measure == "margin":
            margin = value
        elif measure == "margin_ratio":
            margin = -value  # AT's own margin is -1 in these studies
        elif measure not in NO_ATTACK:
            _write_evaluation(folder, trial, measure, epsilon or "0", value / 100)
    record = {
        **{"kind": "trial", "format": 1, "trial": trial, "config": {}, "status": "done"},
        "curve": [{"epoch": 0, "train_margin": margin}],
    }
    _write(folder / "trials" / trial[:16] / "record.json", record)


def _write_evaluation(folder: Path, trial: str, attack: str, epsilon: str, accuracy: float) -> None:
    survivors = round(accuracy * IMAGES)
    record = {
        **{"kind": "evaluation", "format": 1, "trial": trial, "checkpoint": "best_test", "images": IMAGES},
        "attack": {"name": attack, "epsilon": epsilon},
        "verdicts": base64.b64encode(np.packbits(np.arange(IMAGES) < survivors).tobytes()).decode(),
        "accuracy": survivors / IMAGES,
    }
    name = f"{attack}-{epsilon.replace('/', '_')}.json"
    _write(folder / "evaluations" / trial[:16] / "best_test" / name, record)


def _write(path: Path, record: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(record))
