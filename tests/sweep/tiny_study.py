"""A study of seconds for tests of the engine: real digits, few of them, attacks of a step or two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from sweep.studies.model import Study

TINY: dict[str, Any] = {
    "title": "Tiny",
    "name": "tiny",
    "dataset": "digits",
    "model": "small_cnn",
    "seeds": [0, 1],
    "train_images": 160,
    "test_images": 40,
    "train": {
        "epochs": 3,
        "batch_size": 32,
        "learning_rate": 0.05,
        "schedule": {"kind": "constant"},
        "attack": {"epsilon": "0.1", "step_size": "0.05", "steps": 1},
    },
    "selection": {"protocol": "heldout", "validation": 40, "epsilon": "0.1", "step_size": "0.05", "steps": 1},
    "methods": {"at": {}, "sovr": {}},
    "search": {"sovr": {"candidates": 6, "seed": 1000}},
    "evaluation": {"suite": "logit_scaling", "epsilon": "0.1", "images": 20},
}


def tiny(folder: Path, *, plugins: tuple[Path, ...] = (), **changes: Any) -> Study:
    """The study with some keys replaced; None takes a key away."""
    content = {key: value for key, value in {**TINY, **changes}.items() if value is not None}
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(content))
    return Study.load(path, plugins=plugins)
