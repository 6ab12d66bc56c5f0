"""The only scorer: whether a model is right on each image, clean or attacked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from trainers import losses, pulse
from trainers.attack import EvaluationAttack, Verdicts
from trainers.counterexample_file import Counterexamples, joined
from trainers.counterexamples import keep
from trainers.perturbation.autoattack import joined_warnings
from trainers.perturbation.noise import keyed_uniform
from trainers.perturbation.projected_ascent import (
    ProjectedAscent,
    batchnorm_mode,
    correct_predictions,
    frozen_parameters,
    keyed_pgd,
)
from trainers.precision import evaluation_precision, fastest_layout, laid_out
from trainers.reproducible import kernels
from trainers.values import NormName, as_float

MARGIN_TARGETS = 3  # of AutoAttack's nine: the classes with the highest logits decide nearly every image


def pixels(images: Tensor, device: torch.device | str) -> Tensor:
    """Floating point images in [0, 1] on the device; uint8 is divided by 255."""
    moved = images.to(device)
    return moved.float() / 255.0 if moved.dtype == torch.uint8 else moved


def ready(model: nn.Module, device: torch.device | str, precision: str | None = None) -> nn.Module:
    """The model as evaluation wants it, changed in place: eval mode, no parameter gradients, its fastest layout.

    On some CPUs the memory format alone saves a quarter of a ResNet's time; verdicts stay the same. `precision` is
    that of its evaluations on a GPU.
    """
    model.evaluated_in = evaluation_precision(precision)  # type: ignore[assignment]
    layout = fastest_layout(model, torch.device(device))
    return model.to(device).eval().requires_grad_(False).to(memory_format=layout)  # type: ignore[call-overload]


def accuracy(
    model: nn.Module, images: Tensor, labels: Tensor, *, device: torch.device | str = "cpu", batch_size: int = 256
) -> float:
    """Clean accuracy in [0, 1], in eval mode; the model's own mode is back afterwards."""
    with batchnorm_mode(model, "eval"):
        right = sum(
            int(correct_predictions(model, laid_out(pixels(batch, device), model), wanted.to(device)).sum())
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
    norm: NormName = "linf",
    seed: int = 0,
    device: torch.device | str = "cpu",
    batch_size: int = 256,
) -> float:
    """Accuracy under PGD from a uniform start keyed by image, in eval mode: the metric that selects an epoch."""
    right = 0
    for first in range(0, len(images), batch_size):
        part = slice(first, first + batch_size)
        batch, wanted = laid_out(pixels(images[part], device), model), labels[part].to(device)
        indices = torch.arange(first, first + len(batch), device=device)
        adversarial = keyed_pgd(
            model,
            batch,
            wanted,
            indices,
            epsilon=epsilon,
            step_size=step_size,
            steps=steps,
            loss=loss,
            norm=norm,
            seed=seed,
        )
        with batchnorm_mode(model, "eval"):
            right += int(correct_predictions(model, adversarial, wanted).sum())
        pulse.beat()
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
    """Accuracy under PGD on the logit margin against each of the likeliest wrong classes, in eval mode.

    A cheap stand-in for AutoAttack, whose targeted part decides what plain PGD misses: a loss of margins, unlike the
    cross-entropy, does not vanish where a network is confident. An image that one target broke is not attacked again.
    """
    right = 0
    for first in range(0, len(images), batch_size):
        part = slice(first, first + batch_size)
        batch, wanted = laid_out(pixels(images[part], device), model), labels[part].to(device)
        indices = torch.arange(first, first + len(batch), device=device)
        with batchnorm_mode(model, "eval"), torch.no_grad():
            logits = model(batch)
        others = losses.without_label(logits, wanted)
        targets = others.topk(min(MARGIN_TARGETS, logits.shape[1] - 1), dim=1).indices
        standing = logits.argmax(dim=1) == wanted
        for number in range(targets.shape[1]):
            left = standing.nonzero().squeeze(1)
            if not len(left):
                break
            adversarial = _towards(
                model,
                batch[left],
                wanted[left],
                targets[left, number],
                ProjectedAscent(
                    epsilon,
                    step_size,
                    steps,
                    mode="eval",
                    draw=partial(keyed_uniform, seed + number, indices[left]),
                    norm=norm,
                ),
            )
            with batchnorm_mode(model, "eval"):
                standing[left] = correct_predictions(model, adversarial, wanted[left])
        right += int(standing.sum())
        pulse.beat()
    return right / len(images)


def _towards(model: nn.Module, images: Tensor, labels: Tensor, targets: Tensor, attack: ProjectedAscent) -> Tensor:
    return attack(model, images, lambda logits: losses.of_label(logits, targets) - losses.of_label(logits, labels))


@contextmanager
def _beating(model: nn.Module) -> Iterator[None]:
    """A batch of AutoAttack takes thousands of forwards, most of them in loops of its package: each is a beat."""
    hook = model.register_forward_hook(lambda *_: pulse.beat())
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
    """Verdicts of one phase of an attack (see `EvaluationAttack.phases`) on these images.

    `indices` are the images' positions in their data set. For AutoAttack the images are survivors of the phase before
    and the batch size is the attack's own; `checks` adds the package's checks of the model on the first batch, which
    it makes once for a data set. `counterexamples` keeps one for each image that was right and is wrong now.
    """
    size = attack.batch_size or batch_size
    found: list[Verdicts] = []
    kept: list[Counterexamples | None] = []
    searched = torch.device(device).type == "cuda" and phase != "square"  # which asks about another number each time
    computed = kernels(getattr(model, "evaluated_in", None), searched=searched)
    with computed, batchnorm_mode(model, "eval"), frozen_parameters(model), _beating(model):
        for first in range(0, len(images), size):
            part = slice(first, first + size)
            batch, wanted, places = pixels(images[part], device), labels[part].to(device), indices[part].to(device)
            batch = laid_out(batch, model)
            one = attack.verdicts(model, batch, wanted, phase, indices=places, checks=checks and first == 0)
            if counterexamples:
                kept.append(_proof(model, batch, wanted, one, attack, first))
            found.append(replace(one, adversarial=None))  # of one batch at a time
    clean = [one.clean.cpu() for one in found if one.clean is not None]
    distances = [one.distances.cpu() for one in found if one.distances is not None]
    warnings = joined_warnings([warning for one in found for warning in one.warnings])
    return Verdicts(
        torch.cat([one.correct.cpu() for one in found]),
        torch.cat(clean) if clean else None,
        warnings,
        counterexamples=joined(part for part in kept if part is not None) if kept and None not in kept else None,
        distances=torch.cat(distances) if distances else None,
    )


def _proof(
    model: nn.Module, images: Tensor, labels: Tensor, found: Verdicts, attack: EvaluationAttack, first: int
) -> Counterexamples | None:
    """What fooled the model, by places among all images of the phase; None of an attack that shows no images."""
    if found.adversarial is None:
        return None
    fooled = ~found.correct if found.clean is None else found.clean & ~found.correct
    where = fooled.nonzero().flatten()
    return keep(
        model,
        images[where],
        found.adversarial[where],
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
    """All phases of an attack, each on the survivors of the one before."""
    alive, clean, distances = torch.ones(len(images), dtype=torch.bool), None, None
    warnings: list[str] = []
    for phase in attack.phases:
        where = alive.nonzero().flatten()
        if len(where) == 0:
            break
        found = evaluate_phase(
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
        clean = found.clean if clean is None else clean
        alive[where] = found.correct
        distances = found.distances if len(where) == len(images) else None
        warnings += found.warnings
    return Verdicts(alive, clean, joined_warnings(warnings), distances=distances)
