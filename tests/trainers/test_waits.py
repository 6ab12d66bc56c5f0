"""The inner loop leaves its device alone: no method, augmentation or attack makes the host wait in every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainers.small_trials import small_trial
from tests.trainers.tiny import TinyNet
from tests.trainers.waits import Waits
from trainers import composition
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.attacks.perturbation.square import RememberingSquare
from trainers.loop.epoch_metrics import SETTLED_EVERY
from trainers.loop.short_training import digits
from trainers.loop.train import Training
from trainers.plugins import registry

META = torch.device("meta")
AUGMENTED = {"crop": "zero", "padding": 1, "flip": True, "rotation": 5.0}


def waits_of_an_epoch(method: str, batches: int, folder: Path, **recipe: Any) -> Waits:
    declared = composition.resolved_hyperparameters(composition.parse(method)[0])
    wrappers = {name: registry.WRAPPERS.get(name)() for name in composition.parse(method)[1]}
    config = small_trial(
        method,
        recipe={"batch_size": 100 // batches, **recipe},
        hyperparameters={"warmup_epochs": 0} if "warmup_epochs" in declared else {},
        wrappers=wrappers,
        train_images=100,
        test_images=32,
    )
    training = Training(config, folder, None, META, digits())
    with Waits() as waits:
        training._train_epoch()
    return waits


@pytest.mark.parametrize("method", [*registry.METHODS.names(), "at+awp", "sovr+seat", "at+ddpm"])
def test_a_training_step_waits_at_most_once_in_fifty(method: str, tmp_path: Path) -> None:
    waits = waits_of_an_epoch(method, 5, tmp_path, augmentation=AUGMENTED)
    of_an_epoch = 3  # its sums: losses, accuracy, margin
    assert waits.count <= of_an_epoch + 5 * (4 if method == "mma" else 0), waits.seen


def test_losses_are_asked_for_every_fifty_steps(tmp_path: Path) -> None:
    waits = waits_of_an_epoch("st", 100, tmp_path, log_clean_forward=False)
    assert waits.count <= 100 / SETTLED_EVERY + 2, waits.seen


@pytest.mark.parametrize("start", ["uniform", "gauss"])
def test_an_attack_step_never_waits(start: str) -> None:
    with META:
        model, images, labels = TinyNet(), torch.rand(8, 1, 6, 6), torch.zeros(8, dtype=torch.long)
    attack = ProjectedAscent(0.1, 0.05, 5, start=start, mode="train")
    with Waits() as waits:
        attack(model, images, lambda logits: torch.nn.functional.cross_entropy(logits, labels))
    assert waits.count == 0, waits.seen


def test_square_waits_once_in_a_query() -> None:
    with META:
        model, images, labels = TinyNet().eval(), torch.rand(8, 1, 6, 6), torch.zeros(8, dtype=torch.long)
    square = RememberingSquare(model, n_queries=40, eps=0.1, device="meta")
    with Waits() as waits:
        square.attack_single_run(images, labels)
    assert waits.count <= 40 + 3, waits.seen
