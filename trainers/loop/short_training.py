"""Trainings of a second or two on real digits, which check what every method promises about training."""

from __future__ import annotations

import dataclasses
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainers import composition, models
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.config import InnerAttack, Recipe, Schedule, Selection, TrialConfig
from trainers.data import load as load_data
from trainers.data.bundle import DataBundle
from trainers.data.synthetic import SyntheticImages
from trainers.loop.step import training_step
from trainers.loop.train import train
from trainers.method import Batch
from trainers.plugins.registry import WRAPPERS

SHAPE = (1, 8, 8)
LATE = 10**6  # an epoch after every warm-up


def repeated_steps(name: str, steps: int) -> tuple[float, float]:
    """Return the method's loss before training on the same images and, as a mean over five steps, after it."""
    _, wrappers = composition.parse(name)
    torch.manual_seed(0)
    data, built = digits(), composition.build(name)
    model = models.build("small_cnn", 10, shape=SHAPE).train()
    images, labels = data.train_images[:64].float() / 255, data.train_labels[:64]
    batch = Batch(images, labels, torch.arange(64), built.new_state(64))
    hooks = [WRAPPERS.get(wrapper)().begin(model, steps) for wrapper in wrappers]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(steps):
        torch.manual_seed(1)
        generator = torch.Generator().manual_seed(1)
        attack = ProjectedAscent(0.05, 0.025, 2, built.start, built.mode, generator)
        step = training_step(model, optimizer, built.at_epoch(LATE), batch, attack, wrappers=hooks)
        losses.append(step.loss.item())
    return losses[0], sum(losses[-5:]) / 5


class _Interrupted(Exception):
    """The interruption of a training by this check."""


def difference_after_interruption(name: str) -> str | None:
    """Return how a training resumed after its second epoch differs from an uninterrupted one, or None."""
    config, data = short_training(name), digits()

    def stop_after_second(row: dict[str, Any]) -> None:
        if row["epoch"] == 1:
            raise _Interrupted

    with tempfile.TemporaryDirectory() as folder:
        whole, resumed = Path(folder, "whole"), Path(folder, "resumed")
        expected = train(config, folder=whole, data=data)
        if expected["status"] != "done":
            return f"a short training does not finish: {expected['reason']}"
        try:
            train(config, folder=resumed, data=data, on_epoch=stop_after_second)
        except _Interrupted:
            pass
        outcome = train(config, folder=resumed, data=data)
        for row, resumed_row in zip(expected["curve"], outcome["curve"], strict=True):
            for key in row:
                if key != "seconds" and row[key] != resumed_row[key]:
                    return f"after an interruption {key} of epoch {row['epoch']} is {resumed_row[key]}, not {row[key]}"
        if (whole / "last.safetensors").read_bytes() != (resumed / "last.safetensors").read_bytes():
            return "after an interruption the weights are not the same"
    return None


@cache
def digits() -> DataBundle:
    """Return 100 training and 32 test images of digits; the training images double as synthetic ones."""
    data = load_data("digits", None).limited(100, 32)
    pictures = np.ascontiguousarray(data.train_images.numpy().transpose(0, 2, 3, 1))
    return dataclasses.replace(data, synthetic=SyntheticImages(pictures, data.train_labels.numpy()))


def short_training(name: str) -> TrialConfig:
    """Return the configuration of a training of three epochs of four batches, the last one of odd size.

    Warm-ups end on either side of the interruption.
    """
    base, wrappers = composition.parse(name)
    declared = composition.resolved_hyperparameters(base)
    return TrialConfig(
        dataset="digits",
        model="small_cnn",
        method=name,
        hyperparameters={"warmup_epochs": 1} if "warmup_epochs" in declared else {},
        wrappers={wrapper: WRAPPERS.get(wrapper)(**WRAPPERS.get(wrapper).few_epochs) for wrapper in wrappers},
        recipe=Recipe(
            epochs=3,
            batch_size=33,
            learning_rate=0.05,
            schedule=Schedule(kind="piecewise", at=(2.0,), factors=(0.1,)),
            attack=InnerAttack(epsilon="0.1", step_size="0.05", steps=2),
        ),
        selection=Selection(steps=2, step_size="0.05", epsilon="0.1"),
    )
