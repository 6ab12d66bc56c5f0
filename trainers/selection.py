"""Which epoch's weights are kept: accuracies of the model as it stands, and the rule that compares epochs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainers import losses
from trainers.attacks.noise import keyed_uniform
from trainers.attacks.pgd import LinfAttack
from trainers.config import Selection, as_float
from trainers.method import Objective

_BATCH = 512


def accuracies(
    model: nn.Module, images: Tensor, labels: Tensor, selection: Selection, seed: int
) -> tuple[float, float]:
    """Clean accuracy and accuracy under the selection's PGD, in eval mode, on uint8 images.

    Every epoch attacks from the same random starts, one per image, so that epochs differ by their weights alone.
    """
    clean = attacked = 0
    model.eval()
    for first in range(0, len(images), _BATCH):
        target = labels[first : first + _BATCH]
        pixels = images[first : first + _BATCH].float().div_(255)
        keys = torch.arange(first, first + len(target), device=images.device)
        attack = LinfAttack(
            as_float(selection.epsilon),
            as_float(selection.step_size),
            selection.steps,
            mode="eval",
            draw=lambda like, keys=keys: keyed_uniform(seed, keys, like),  # type: ignore[misc]
        )
        adversarial = attack(model, pixels, _objective(selection.loss, target))
        with torch.no_grad():
            clean += int((model(pixels).argmax(1) == target).sum())
            attacked += int((model(adversarial).argmax(1) == target).sum())
    return clean / len(images), attacked / len(images)


def is_better(value: float, best: float | None, ties: str) -> bool:
    """Strictly greater, or also equal where the last of equal epochs is kept (the 1M-DDPM code)."""
    return best is None or value > best or (ties == "last" and value == best)


def _objective(loss: str, labels: Tensor) -> Objective:
    if loss == "ce":
        return lambda logits: F.cross_entropy(logits, labels, reduction="sum")
    # The 1M-DDPM code's margin, confidence 0: an image that is already misclassified stays where it is.
    return lambda logits: losses.cw_clamped_above(logits, labels, 0.0)
