"""Measurements after an epoch of training: accuracies on the images that the selection uses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from trainers.attacks import parse
from trainers.attacks.scoring.scorer import accuracy, evaluate_attack, margin_accuracy, pgd_accuracy
from trainers.config import TrialConfig
from trainers.data.bundle import DataBundle
from trainers.values import as_float

Row = dict[str, Any]  # one epoch of a training's curve
BATCH = 512


def measured(
    model: nn.Module, data: DataBundle, config: TrialConfig, epoch: int, epochs: int, device: torch.device
) -> Row:
    """Return the accuracies of one 0-based epoch, by name.

    A value is None if the selection does not measure this epoch or these images.
    """
    row: Row = {f"{split}_{kind}_accuracy": None for split in ("test", "validation") for kind in ("clean", "pgd")}
    selection = config.selection
    if not selection.measures(epoch, epochs):
        return row
    if selection.protocol == "paper":
        used = slice(0, selection.images)
        row |= _accuracies("test", model, data.test_images[used], data.test_labels[used], config, device)
    held_out, labels = data.validation_images, data.validation_labels
    if held_out is not None and labels is not None:
        row |= _accuracies("validation", model, held_out, labels, config, device)
        if selection.margin:  # margins to the most likely classes, with a sixtieth of AutoAttack's steps
            robust = margin_accuracy(model, held_out, labels, **_settings(config, device))
            row["validation_margin_accuracy"] = robust
        if selection.quick:  # closest to AutoAttack, at several times the passes of the margins
            attack = parse("quick", epsilon=selection.epsilon, norm=config.selection_norm, seed=config.seed)
            correct = evaluate_attack(model, held_out, labels, attack, device=device, batch_size=BATCH).correct
            row["validation_quick_accuracy"] = float(correct.float().mean())
    return row


def _accuracies(
    split: str, model: nn.Module, images: Tensor, labels: Tensor, config: TrialConfig, device: torch.device
) -> Row:
    """Return the accuracies on one split.

    The attack starts from the same noise in every epoch, so that epochs differ by their weights alone.
    """
    # The margin loss of the 1M-DDPM code: an image that is already misclassified does not move.
    loss = "cw_until_wrong" if config.selection.loss == "cw" else "ce"
    return {
        f"{split}_clean_accuracy": accuracy(model, images, labels, device=device, batch_size=BATCH),
        f"{split}_pgd_accuracy": pgd_accuracy(model, images, labels, loss=loss, **_settings(config, device)),
    }


def _settings(config: TrialConfig, device: torch.device) -> dict[str, Any]:
    selection = config.selection
    return {
        "epsilon": as_float(selection.epsilon),
        "step_size": as_float(selection.step_size),
        "steps": selection.steps,
        "norm": config.selection_norm,
        "seed": config.seed,
        "device": device,
        "batch_size": BATCH,
    }
