"""The only scorer: it decides for each image, clean or attacked, whether a model is right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from trainers import losses
from trainers.attack import EvaluationAttack, Verdicts
from trainers.attacks.perturbation.autoattack import joined_warnings
from trainers.attacks.perturbation.noise import keyed_uniform
from trainers.attacks.perturbation.projected_ascent import (
    ProjectedAscent,
    batchnorm_mode,
    correct_predictions,
    frozen_parameters,
    keyed_pgd,
)
from trainers.attacks.scoring.counterexample_file import Counterexamples, joined
from trainers.attacks.scoring.counterexamples import keep
from trainers.loop import heartbeat
from trainers.loop.precision import evaluation_precision, fastest_layout, laid_out
from trainers.loop.reproducible import kernels
from trainers.values import NormName, as_float

MARGIN_TARGETS = 3  # AutoAttack has nine; the classes with the highest logits decide nearly every image


def pixels(images: Tensor, device: torch.device | str) -> Tensor:
    """Return floating point images in [0, 1] on the device; uint8 is divided by 255."""
    moved = images.to(device)
    return moved.float() / 255.0 if moved.dtype == torch.uint8 else moved


def ready(model: nn.Module, device: torch.device | str, precision: str | None = None) -> nn.Module:
    """Prepare the model for evaluation, in place, and return it: eval mode, no parameter gradients, the fastest layout.

    On some CPUs the memory format alone saves a quarter of a ResNet's time; verdicts are unaffected. `precision` is
    that of its training, which also sets the precision of its evaluations on a GPU.
    """
    model.evaluated_in = evaluation_precision(precision)  # type: ignore[assignment]
    layout = fastest_layout(model, torch.device(device))
    return model.to(device).eval().requires_grad_(False).to(memory_format=layout)  # type: ignore[call-overload]


def accuracy(
    model: nn.Module, images: Tensor, labels: Tensor, *, device: torch.device | str = "cpu", batch_size: int = 256
) -> float:
    """Return the clean accuracy in [0, 1], measured in eval mode. The model's mode is restored."""
    with batchnorm_mode(model, "eval"):
        right = sum(
            int(correct_predictions(model, laid_out(pixels(batch, device), model), targets.to(device)).sum())
            for batch, targets in zip(images.split(batch_size), labels.split(batch_size), strict=True)
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
    norm: NormName = "linf",
    seed: int = 0,
    device: torch.device | str = "cpu",
    batch_size: int = 256,
) -> float:
    """Return the accuracy under PGD in [0, 1], measured in eval mode: the metric that selects an epoch.

    The start is uniform and keyed by image.
    """
    right = 0
    for first in range(0, len(images), batch_size):
        part = slice(first, first + batch_size)
        batch, true_classes = laid_out(pixels(images[part], device), model), labels[part].to(device)
        indices = torch.arange(first, first + len(batch), device=device)
        adversarial = keyed_pgd(
            model,
            batch,
            true_classes,
            indices,
            epsilon=epsilon,
            step_size=step_size,
            steps=steps,
            loss=loss,
            norm=norm,
            seed=seed,
        )
        with batchnorm_mode(model, "eval"):
            right += int(correct_predictions(model, adversarial, true_classes).sum())
        heartbeat.beat()
    return right / len(images)


def margin_accuracy(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    step_size: float,
    steps: int,
    norm: NormName = "linf",
    seed: int = 0,
    device: torch.device | str = "cpu",
    batch_size: int = 256,
) -> float:
    """Return the accuracy under PGD on the logit margin to each of the most likely wrong classes, in eval mode.

    This is a cheap stand-in for AutoAttack, whose targeted part finds what plain PGD misses: unlike cross-entropy, a
    margin loss does not vanish when a network is confident. An image that one target broke is not attacked again.
    """
    right = 0
    for first in range(0, len(images), batch_size):
        part = slice(first, first + batch_size)
        batch, true_classes = laid_out(pixels(images[part], device), model), labels[part].to(device)
        indices = torch.arange(first, first + len(batch), device=device)
        with batchnorm_mode(model, "eval"), torch.no_grad():
            logits = model(batch)
        wrong_logits = losses.without_label(logits, true_classes)
        targets = wrong_logits.topk(min(MARGIN_TARGETS, logits.shape[1] - 1), dim=1).indices
        robust = logits.argmax(dim=1) == true_classes
        for number in range(targets.shape[1]):
            rows = robust.nonzero().squeeze(1)
            if not len(rows):
                break
            adversarial = _towards(
                model,
                batch[rows],
                true_classes[rows],
                targets[rows, number],
                ProjectedAscent(
                    epsilon,
                    step_size,
                    steps,
                    mode="eval",
                    draw=partial(keyed_uniform, seed + number, indices[rows]),
                    norm=norm,
                ),
            )
            with batchnorm_mode(model, "eval"):
                robust[rows] = correct_predictions(model, adversarial, true_classes[rows])
        right += int(robust.sum())
        heartbeat.beat()
    return right / len(images)


def _towards(model: nn.Module, images: Tensor, labels: Tensor, targets: Tensor, attack: ProjectedAscent) -> Tensor:
    return attack(model, images, lambda logits: losses.of_label(logits, targets) - losses.of_label(logits, labels))


@contextmanager
def _beating(model: nn.Module) -> Iterator[None]:
    """Signal progress at every forward pass: one batch of AutoAttack takes thousands, most inside its package."""
    hook = model.register_forward_hook(lambda *_: heartbeat.beat())
    try:
        yield
    finally:
        hook.remove()


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
    counterexamples: bool = False,
) -> Verdicts:
    """Return the verdicts of one phase of an attack on these images (see `EvaluationAttack.phases`).

    `indices` are the images' positions in their data set. For AutoAttack the images are the survivors of the previous
    phase, and the batch size is the attack's own. `checks` runs the package's checks of the model on the first batch,
    once per data set. `counterexamples` stores one for each image that was right and is now wrong.
    """
    size = attack.batch_size or batch_size
    outcomes: list[Verdicts] = []
    stored: list[Counterexamples | None] = []
    # Square's batches differ in size at every query, so that a search for kernels would never pay.
    searched = torch.device(device).type == "cuda" and phase != "square"
    precision = kernels(getattr(model, "evaluated_in", None), searched=searched)
    with precision, batchnorm_mode(model, "eval"), frozen_parameters(model), _beating(model):
        for first in range(0, len(images), size):
            part = slice(first, first + size)
            batch = laid_out(pixels(images[part], device), model)
            targets, positions = labels[part].to(device), indices[part].to(device)
            outcome = attack.verdicts(model, batch, targets, phase, indices=positions, checks=checks and first == 0)
            if counterexamples:
                stored.append(_proof(model, batch, targets, outcome, attack, first))
            outcomes.append(replace(outcome, adversarial=None))  # at most one batch of images stays in memory
    clean = [outcome.clean.cpu() for outcome in outcomes if outcome.clean is not None]
    distances = [outcome.distances.cpu() for outcome in outcomes if outcome.distances is not None]
    warnings = joined_warnings([warning for outcome in outcomes for warning in outcome.warnings])
    return Verdicts(
        torch.cat([outcome.correct.cpu() for outcome in outcomes]),
        torch.cat(clean) if clean else None,
        warnings,
        counterexamples=joined(part for part in stored if part is not None) if stored and None not in stored else None,
        distances=torch.cat(distances) if distances else None,
    )


def _proof(
    model: nn.Module, images: Tensor, labels: Tensor, verdicts: Verdicts, attack: EvaluationAttack, first: int
) -> Counterexamples | None:
    """Return counterexamples by position among the phase's images, or None if the attack returns no images."""
    if verdicts.adversarial is None:
        return None
    fooled = ~verdicts.correct if verdicts.clean is None else verdicts.clean & ~verdicts.correct
    where = fooled.nonzero().flatten()
    return keep(
        model,
        images[where],
        verdicts.adversarial[where],
        labels[where],
        first + where.cpu().numpy(),
        norm=attack.norm,
        epsilon=as_float(attack.epsilon),
    )


def evaluate_attack(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    attack: EvaluationAttack,
    *,
    device: torch.device | str = "cpu",
    batch_size: int = 256,
) -> Verdicts:
    """Run all phases of an attack, each on the survivors of the one before, and return the joint verdicts."""
    alive, clean, distances = torch.ones(len(images), dtype=torch.bool), None, None
    warnings: list[str] = []
    for phase in attack.phases:
        where = alive.nonzero().flatten()
        if len(where) == 0:
            break
        phase_verdicts = evaluate_phase(
            model,
            images[where],
            labels[where],
            attack,
            phase,
            indices=where,
            device=device,
            batch_size=batch_size,
            checks=phase == "clean",
        )
        clean = phase_verdicts.clean if clean is None else clean
        alive[where] = phase_verdicts.correct
        distances = phase_verdicts.distances if len(where) == len(images) else None
        warnings += phase_verdicts.warnings
    return Verdicts(alive, clean, joined_warnings(warnings), distances=distances)
