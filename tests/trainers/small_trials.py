"""Trials of a second or less on scikit-learn's digits, for the tests of the training loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trainers.config import InnerAttack, Recipe, Schedule, Selection, TrialConfig
from trainers.wrappers.awp import Awp
from trainers.wrappers.ddpm import Ddpm
from trainers.wrappers.seat import Seat


def small_trial(method: str = "at", *, recipe: dict[str, Any] | None = None, **changes: Any) -> TrialConfig:
    attack = InnerAttack(epsilon="0.1", step_size="0.05", steps=2)
    settings = {"epochs": 3, "batch_size": 32, "learning_rate": 0.05, "standardize": False, "attack": attack}
    selection = Selection(epsilon="0.1", step_size="0.05", steps=2)
    return TrialConfig(
        **{
            "dataset": "digits",
            "model": "small_cnn",
            "method": method,
            "recipe": Recipe(**{**settings, **(recipe or {})}),
            "selection": selection,
            "train_images": 80,
            "test_images": 40,
            **changes,
        }
    )


def every_kind_of_trial(folder: Path) -> dict[str, TrialConfig]:
    """One trial for each kind of state that a resumed training must find again."""
    generator = np.random.default_rng(0)
    np.savez(folder / "extra.npz", image=generator.integers(0, 256, (30, 8, 8, 1), np.uint8), label=np.arange(30) % 10)
    crop = {"augmentation": {"crop": "zero", "padding": 1}}
    one_cycle = {"schedule": Schedule(kind="onecycle", warmup_fraction=0.5), "nesterov": True, "decay_batchnorm": False}
    return {
        "at": small_trial(recipe=crop, selection=Selection(validation=16, steps=1, keep=(2,))),
        "mma": small_trial("mma", recipe={"steps": 7}),
        "sovr+seat": small_trial("sovr+seat", seat=Seat()),
        "trades+awp": small_trial("trades+awp", awp=Awp(gamma=0.01, warmup_epochs=2)),
        "at+ddpm": small_trial("at+ddpm", ddpm=Ddpm(file="extra.npz", warmup_fraction=0.2), recipe=one_cycle),
    }
