"""Attacks on a model in memory, without a store or files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from sweep.errors import UserError
from trainers.attack import AttackSettings, EvaluationAttack
from trainers.attacks.perturbation.projected_ascent import batchnorm_mode
from trainers.attacks.scoring import suites
from trainers.attacks.scoring.scorer import evaluate_attack, pixels
from trainers.values import NormName, as_float


@dataclass(frozen=True)
class Evaluated:
    """Results of attacks on one model.

    frame      one row per attack, with its accuracy in [0, 1]
    verdicts   by the attack's id, one boolean per image: True if the model survives
    worst      share of images on which the model survives all attacks
    distances  by the attack's id, for `curve`: the distance from each image at which the model was fooled
    """

    frame: pd.DataFrame
    verdicts: dict[str, np.ndarray]
    worst: float
    distances: dict[str, np.ndarray] = field(default_factory=dict)

    def accuracy(self, attack: str) -> float:
        """Return the accuracy in [0, 1] under the first attack of that name."""
        rows = self.frame[self.frame["attack"] == attack]
        if rows.empty:
            raise UserError(f"{attack!r} was not run; choose one of: {', '.join(self.frame['attack'])}")
        return float(rows["accuracy"].iloc[0])


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
    """Attack a model in memory. The model takes images in [0, 1] and returns logits.

    Its training mode, gradients and device remain unchanged.

    Args:
        images: Floats in [0, 1] or uint8 (divided by 255), shape (n, channels, height, width).
        labels: Class indices, shape (n,).
        attacks: Names as on the command line (autoattack@l2:0.5 sets its own norm and radius), suites such as main, or
            attack objects.
        epsilon: Radius for attacks that set none, as a number or a fraction such as 8/255.
        norm: Norm for attacks that set none.
        device: Where to run; by default, the model's device.

    Raises:
        UserError: If images, labels, logits or attacks do not fit together.
    """
    _check(images, labels)
    run_on = torch.device(device) if device is not None else _device(model)
    with batchnorm_mode(model, "eval"), torch.no_grad():
        logits = model(pixels(images[:2], run_on))
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
        outcome = evaluate_attack(model, images, labels, attack, device=run_on, batch_size=batch_size)
        verdicts[attack.id] = correct = outcome.correct.numpy()
        worst &= correct
        if outcome.distances is not None:
            distances[attack.id] = outcome.distances.numpy()
        rows.append(
            {
                "attack": attack.name,
                "norm": attack.norm,
                "epsilon": attack.epsilon,
                "epsilon_value": as_float(attack.epsilon),
                "accuracy": float(correct.mean()),
                "images": len(correct),
                "warnings": "; ".join(outcome.warnings),
                "attack_id": attack.id,
            }
        )
    return Evaluated(pd.DataFrame(rows), verdicts, float(worst.mean()), distances)


def _attacks(requested: Sequence[str | EvaluationAttack], settings: AttackSettings) -> list[EvaluationAttack]:
    if isinstance(requested, str):
        raise UserError(f"attacks must be a list of names, such as [{requested!r}]")
    attacks: list[EvaluationAttack] = []
    try:
        for attack in requested:
            if isinstance(attack, EvaluationAttack):
                attacks.append(attack)
            else:
                attacks += suites.attacks(suites.SUITES.get(attack, (attack,)), settings)
    except ValueError as fault:
        raise UserError(str(fault)) from None
    corrupted = [attack.name for attack in attacks if attack.kind == "corruption"]
    if corrupted:
        raise UserError(
            f"{corrupted[0]} needs the files of a data set; use python -m sweep.evaluate --attacks corruptions"
        )
    return list({attack.id: attack for attack in attacks}.values())


def _check(images: Tensor, labels: Tensor) -> None:
    if images.dim() != 4 or labels.dim() != 1 or len(images) != len(labels) or len(images) == 0:
        raise UserError(
            f"images must be (n, channels, height, width) with n labels, not {tuple(images.shape)} with "
            f"{tuple(labels.shape)}"
        )
    if images.is_floating_point() and not (float(images.min()) >= 0 and float(images.max()) <= 1):
        raise UserError(
            f"images must lie in [0, 1], not in [{float(images.min()):.3g}, {float(images.max()):.3g}]; move the "
            "standardisation into the model"
        )


def _device(model: nn.Module) -> torch.device:
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device
