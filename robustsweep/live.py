"""Attacks on a model in memory: no store, no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sweep.errors import UserError
from trainers import suites
from trainers.attack import AttackSettings, EvaluationAttack
from trainers.evaluate import evaluate_attack, pixels
from trainers.perturbation.projected_ascent import batchnorm_mode
from trainers.values import NormName, as_float


@dataclass(frozen=True)
class Evaluated:
    """`frame` has one row per attack with its accuracy; `verdicts` one truth value per image, by the attack's id.

    `worst` is the share of images that withstand all of them; `distances` are how far from each image `curve` fooled
    the model.
    """

    frame: pd.DataFrame
    verdicts: dict[str, np.ndarray]
    worst: float
    distances: dict[str, np.ndarray] = field(default_factory=dict)

    def accuracy(self, attack: str) -> float:
        """Of the first attack of that name."""
        found = self.frame[self.frame["attack"] == attack]
        if found.empty:
            raise UserError(f"{attack!r} is none of: {', '.join(self.frame['attack'])}")
        return float(found["accuracy"].iloc[0])


def evaluate(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    attacks: Sequence[str | EvaluationAttack] = ("clean", "pgd-20", "autoattack"),
    *,
    epsilon: str | float = "8/255",
    norm: NormName = "linf",
    seed: int = 0,
    batch_size: int = 256,
    device: torch.device | str | None = None,
) -> Evaluated:
    """Attacks a live model, which takes images in [0, 1] (uint8 is divided by 255) and returns logits.

    Attacks are names as on the command line (autoattack@l2:0.5 has a norm and radius of its own), suites such as main,
    or attacks of one's own. Model and labels keep their modes, gradients and places; the device is the model's.
    """
    _check(images, labels)
    place = torch.device(device) if device is not None else _device(model)
    with batchnorm_mode(model, "eval"), torch.no_grad():
        logits = model(pixels(images[:2], place))
    if logits.dim() != 2 or logits.shape[1] <= int(labels.max()):
        raise UserError(
            f"the model returns {tuple(logits.shape)} for {len(images[:2])} images; expected one logit for each of "
            f"{int(labels.max()) + 1} classes"
        )
    settings = AttackSettings(
        epsilon=str(epsilon),
        norm=norm,
        classes=logits.shape[1],
        shape=(images.shape[1], images.shape[2], images.shape[3]),
        seed=seed,
        batch_size=batch_size,
    )
    rows, verdicts, distances, worst = [], {}, {}, np.ones(len(images), dtype=bool)
    for attack in _attacks(attacks, settings):
        found = evaluate_attack(model, images, labels, attack, device=place, batch_size=batch_size)
        verdicts[attack.id] = correct = found.correct.numpy()
        worst &= correct
        if found.distances is not None:
            distances[attack.id] = found.distances.numpy()
        rows.append(
            {
                "attack": attack.name,
                "norm": attack.norm,
                "epsilon": attack.epsilon,
                "epsilon_value": as_float(attack.epsilon),
                "accuracy": float(correct.mean()),
                "images": len(correct),
                "warnings": "; ".join(found.warnings),
                "attack_id": attack.id,
            }
        )
    return Evaluated(pd.DataFrame(rows), verdicts, float(worst.mean()), distances)


def _attacks(asked: Sequence[str | EvaluationAttack], settings: AttackSettings) -> list[EvaluationAttack]:
    if isinstance(asked, str):
        raise UserError(f"attacks is a list of names, such as [{asked!r}]")
    found: list[EvaluationAttack] = []
    try:
        for one in asked:
            if isinstance(one, EvaluationAttack):
                found.append(one)
            else:
                found += suites.attacks(suites.SUITES.get(one, (one,)), settings)
    except ValueError as fault:
        raise UserError(str(fault)) from None
    corrupted = [one.name for one in found if one.kind == "corruption"]
    if corrupted:
        raise UserError(f"{corrupted[0]} needs files of a data set; use python -m sweep.evaluate --attacks corruptions")
    return list({attack.id: attack for attack in found}.values())


def _check(images: Tensor, labels: Tensor) -> None:
    if images.dim() != 4 or labels.dim() != 1 or len(images) != len(labels) or len(images) == 0:
        raise UserError(
            f"images must be (n, channels, height, width) with n labels, not {tuple(images.shape)} with "
            f"{tuple(labels.shape)}"
        )
    if images.is_floating_point() and not (float(images.min()) >= 0 and float(images.max()) <= 1):
        raise UserError(
            f"images must lie in [0, 1], not in [{float(images.min()):.3g}, {float(images.max()):.3g}]; make the "
            "standardisation a part of the model"
        )


def _device(model: nn.Module) -> torch.device:
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device
