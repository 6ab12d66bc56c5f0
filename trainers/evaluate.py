"""The only scorer: whether a model is right on each image, clean or attacked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from trainers import losses
from trainers.attacks import autoattack, spsa
from trainers.attacks.noise import keyed_uniform
from trainers.attacks.pgd import LinfAttack, batchnorm_mode, frozen_parameters
from trainers.config import as_float
from trainers.suites import EvaluationAttack

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "ce": losses.cross_entropy,
    "cw": losses.cw,
    "cw_clamped_above": losses.cw_clamped_above,
    "cw_until_wrong": partial(losses.cw_clamped_above, confidence=0.0),
}


@dataclass(frozen=True)
class Verdicts:
    """`correct` and `clean` are boolean, one per image; `clean` is absent where a phase does not look at it."""

    correct: Tensor
    clean: Tensor | None = None
    warnings: list[str] = field(default_factory=list)


def pixels(images: Tensor, device: torch.device | str) -> Tensor:
    """Floating point images in [0, 1] on the device; uint8 is divided by 255."""
    moved = images.to(device)
    return moved.float() / 255.0 if moved.dtype == torch.uint8 else moved


def ready(model: nn.Module, device: torch.device | str) -> nn.Module:
    """The model as evaluation wants it, changed in place: eval mode, no parameter gradients, channels last.

    On a CPU the memory format alone saves a quarter of a ResNet's time; verdicts stay the same.
    """
    return model.to(device).eval().requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def correct_predictions(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    with torch.no_grad():
        return model(images).argmax(dim=1) == labels


def accuracy(
    model: nn.Module, images: Tensor, labels: Tensor, *, device: torch.device | str = "cpu", batch_size: int = 256
) -> float:
    """Clean accuracy in [0, 1], in eval mode; the model's own mode is back afterwards."""
    with batchnorm_mode(model, "eval"):
        right = sum(
            int(correct_predictions(model, pixels(batch, device), wanted.to(device)).sum())
            for batch, wanted in zip(images.split(batch_size), labels.split(batch_size), strict=True)
        )
    return right / len(images)


def pgd_accuracy(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    step_size: float,
    steps: int,
    loss: str = "ce",
    seed: int = 0,
    device: torch.device | str = "cpu",
    batch_size: int = 256,
) -> float:
    """Accuracy under PGD from a uniform start keyed by image, in eval mode: the metric that selects an epoch."""
    right = 0
    for first in range(0, len(images), batch_size):
        part = slice(first, first + batch_size)
        batch, wanted = pixels(images[part], device), labels[part].to(device)
        indices = torch.arange(first, first + len(batch), device=device)
        attack = LinfAttack(epsilon, step_size, steps, mode="eval", draw=partial(keyed_uniform, seed, indices))
        adversarial = attack(model, batch, partial(_objective, loss, None, wanted))
        with batchnorm_mode(model, "eval"):
            right += int(correct_predictions(model, adversarial, wanted).sum())
    return right / len(images)


def evaluate_phase(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    attack: EvaluationAttack,
    phase: str,
    *,
    indices: Tensor,
    device: torch.device | str = "cpu",
    batch_size: int = 256,
    checks: bool = False,
) -> Verdicts:
    """Verdicts of one phase of an attack (see `EvaluationAttack.phases`) on these images.

    `indices` are the images' positions in their data set: the randomness of our attacks goes by them. For AutoAttack
    the images are survivors of the phase before and the batch size is the attack's own; `checks` adds the package's
    checks of the model on the first batch, which it makes once for a data set.
    """
    size = attack.batch_size or batch_size
    correct, clean, warnings = [], [], []
    with batchnorm_mode(model, "eval"), frozen_parameters(model):
        for first in range(0, len(images), size):
            part = slice(first, first + size)
            batch, wanted = pixels(images[part], device), labels[part].to(device)
            if attack.kind == "autoattack" and phase != "clean":
                survived, caught = autoattack.run_component(model, batch, wanted, phase, attack)
                correct.append(survived.cpu())
                warnings += caught
                continue
            right = correct_predictions(model, batch, wanted)
            clean.append(right.cpu())
            if attack.kind in ("clean", "autoattack"):
                correct.append(right.cpu())
                if attack.kind == "autoattack" and checks and first == 0:
                    warnings += autoattack.check_model(model, batch, wanted, attack)
            else:
                correct.append(_attacked(model, batch, wanted, attack, indices[part].to(device)).cpu())
    return Verdicts(torch.cat(correct), torch.cat(clean) if clean else None, autoattack.joined_warnings(warnings))


def evaluate_shard(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    attack: EvaluationAttack,
    *,
    first: int = 0,
    device: torch.device | str = "cpu",
    batch_size: int = 256,
) -> Verdicts:
    """All phases of an attack on a run of images that starts at position `first` of its data set, in one go."""
    indices = torch.arange(first, first + len(images))
    alive = torch.ones(len(images), dtype=torch.bool)
    clean, warnings = None, []
    for phase in attack.phases:
        where = torch.nonzero(alive).flatten()
        if len(where) == 0:
            break
        found = evaluate_phase(
            model,
            images[where],
            labels[where],
            attack,
            phase,
            indices=indices[where],
            device=device,
            batch_size=batch_size,
            checks=phase == "clean",
        )
        clean = found.clean if clean is None else clean
        alive[where] = found.correct
        warnings += found.warnings
    return Verdicts(alive, clean, autoattack.joined_warnings(warnings))


def _attacked(model: nn.Module, images: Tensor, labels: Tensor, attack: EvaluationAttack, indices: Tensor) -> Tensor:
    """Whether the model is right on each attacked image."""
    seen: list[Tensor] = []
    observe = (lambda logits: seen.append(logits.argmax(dim=1) == labels)) if attack.strict else None
    adversarial = adversarial_images(model, images, labels, attack, indices, observe)
    correct = correct_predictions(model, adversarial, labels)
    # The strict count is over the results of all steps; what was seen first is the start.
    for result in seen[1:]:
        correct &= result
    return correct


def adversarial_images(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    attack: EvaluationAttack,
    indices: Tensor,
    observe: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """What FGSM, PGD or SPSA make of a batch; `observe` sees the logits of every PGD iterate before its step."""
    epsilon = as_float(attack.epsilon)
    if attack.kind == "spsa":
        assert attack.steps is not None and attack.samples is not None
        assert attack.delta is not None and attack.learning_rate is not None
        return spsa.perturb(
            model,
            images,
            labels,
            epsilon=epsilon,
            steps=attack.steps,
            samples=attack.samples,
            delta=attack.delta,
            learning_rate=attack.learning_rate,
            directions=spsa.shared_directions(attack.seed, attack.samples),
        )
    assert attack.steps is not None and attack.step_size is not None and attack.loss is not None
    linf = LinfAttack(
        epsilon,
        as_float(attack.step_size),
        attack.steps,
        start=attack.start or "uniform",
        mode="eval",
        draw=partial(keyed_uniform, attack.seed, indices),
    )
    return linf(model, images, partial(_objective, attack.loss, attack.alpha, labels), observe=observe)


def _objective(loss: str, alpha: float | None, labels: Tensor, logits: Tensor) -> Tensor:
    return LOSSES[loss](logits if alpha is None else alpha * logits, labels)
