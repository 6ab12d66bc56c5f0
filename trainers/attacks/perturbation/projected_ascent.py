"""Projected gradient ascent in a ball (Madry et al. 2018): the inner attack of training and of PGD evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from trainers import losses
from trainers.attacks.perturbation.noise import keyed_uniform
from trainers.attacks.perturbation.norms import NORMS
from trainers.compat.torch_internals import batchnorms
from trainers.method import Objective
from trainers.values import NormName

STARTS = ("uniform", "gauss", "none")
MODES = ("train", "eval", "train_untracked")
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "ce": losses.cross_entropy,
    "cw": losses.cw,
    "cw_clamped_above": losses.cw_clamped_above,
    "cw_until_wrong": partial(losses.cw_clamped_above, confidence=0.0),
}


@contextmanager
def batchnorm_mode(model: nn.Module, mode: str) -> Iterator[None]:
    """Put the model into one of `MODES`. Every module's own mode is restored, also that of frozen layers."""
    if mode not in MODES:
        raise ValueError(f"unknown BatchNorm mode {mode!r}; known: {', '.join(MODES)}")
    modules = list(model.modules())
    training = [module.training for module in modules]
    tracked = [module for module in batchnorms(model) if module.track_running_stats]
    model.train(mode != "eval")
    try:
        if mode == "train_untracked":
            for batchnorm in tracked:
                batchnorm.track_running_stats = False
        yield
    finally:
        for batchnorm in tracked:
            batchnorm.track_running_stats = True
        for module, was_training in zip(modules, training, strict=True):
            module.training = was_training


@contextmanager
def frozen_parameters(model: nn.Module) -> Iterator[None]:
    """Switch off gradients for parameters, so that autograd neither stores nor computes what only they need."""
    trainable = [p for p in model.parameters() if p.requires_grad and p.is_leaf]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def per_sample(amount: Tensor | float, images: Tensor) -> Tensor | float:
    """Return a radius or step for each sample, shaped so that it broadcasts over the images."""
    if isinstance(amount, Tensor) and amount.dim() == 1:
        return amount.to(images).view(-1, *[1] * (images.dim() - 1))
    return amount


def ascend(
    model: nn.Module,
    images: Tensor,
    objective: Objective,
    adversarial: Tensor,
    *,
    epsilon: Tensor | float,
    step_size: Tensor | float,
    steps: int,
    norm: NormName = "linf",
    observe: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Take steps of the norm from `adversarial`, each projected into the ball around `images` and into [0, 1].

    The caller sets the model's mode. `observe` is called with the logits of every iterate before its step.
    """
    move = NORMS[norm].moves(images, epsilon, step_size)
    for _ in range(steps):
        adversarial = adversarial.detach().requires_grad_()
        with torch.enable_grad():
            logits = model(adversarial)
            value = objective(logits).sum()
        (gradient,) = torch.autograd.grad(value, adversarial)
        if observe is not None:
            observe(logits.detach())
        adversarial = move(adversarial.detach(), gradient)
    return adversarial.detach()


@dataclass(frozen=True)
class ProjectedAscent:
    """PGD with a study's settings; satisfies `trainers.method.Attack`.

    start     uniform: as the norm draws it, in L∞ U(-ε, ε), clipped to [0, 1]; none
              gauss: 0.001·N(0, 1), not clipped before the first step
    mode      BatchNorm while it runs: train (buffers move), eval, train_untracked (batch statistics, buffers fixed)
    draw      returns the unit noise for the start (U(-1, 1) or N(0, 1)) in place of the generator
    final_forward  in `train` mode, forward the result once more for BatchNorm's buffers, as in the official loop; a
              caller that accounts for that update turns it off
    """

    epsilon: float
    step_size: float
    steps: int
    start: str = "uniform"
    mode: str = "train"
    generator: torch.Generator | None = None
    draw: Callable[[Tensor], Tensor] | None = None
    final_forward: bool = True
    norm: NormName = "linf"

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise ValueError(f"unknown start {self.start!r}; known: {', '.join(STARTS)}")

    def __call__(
        self,
        model: nn.Module,
        images: Tensor,
        objective: Objective,
        *,
        epsilon: Tensor | float | None = None,
        step_size: Tensor | float | None = None,
        observe: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        radius = per_sample(self.epsilon if epsilon is None else epsilon, images)
        step = per_sample(self.step_size if step_size is None else step_size, images)
        images = images.detach()
        with batchnorm_mode(model, self.mode), frozen_parameters(model):
            adversarial = ascend(
                model,
                images,
                objective,
                self._start(images, radius),
                epsilon=radius,
                step_size=step,
                steps=self.steps,
                norm=self.norm,
                observe=observe,
            )
            if self.mode == "train" and self.final_forward and self.steps > 0:
                with torch.no_grad():
                    model(adversarial)
        return adversarial

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        with batchnorm_mode(model, self.mode), torch.no_grad():
            return model(images)

    def once(self, craft: Callable[[], Any]) -> Any:
        return craft()

    def _start(self, images: Tensor, radius: Tensor | float) -> Tensor:
        if self.start == "none":
            return images.clone()
        if self.start == "gauss":
            return images + 0.001 * self._unit_noise(images)
        return NORMS[self.norm].start(images, radius, self._unit_noise(images))

    def _unit_noise(self, images: Tensor) -> Tensor:
        if self.draw is not None:
            return self.draw(images)
        device = images.device if self.generator is None else self.generator.device
        noise = torch.empty(images.shape, dtype=images.dtype, device=device)
        if self.start == "gauss":
            return noise.normal_(generator=self.generator).to(images.device)
        return noise.uniform_(-1.0, 1.0, generator=self.generator).to(images.device)


def keyed_pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    indices: Tensor,
    *,
    epsilon: float,
    step_size: float,
    steps: int,
    start: str = "uniform",
    loss: str = "ce",
    alpha: float | None = None,
    seed: int = 0,
    norm: NormName = "linf",
) -> Tensor:
    """Run PGD for an evaluation, in eval mode, from a start drawn by image.

    It maximises a named loss of the logits, which are multiplied by `alpha` if given.
    """

    def objective(logits: Tensor) -> Tensor:
        return LOSSES[loss](logits if alpha is None else alpha * logits, labels)

    draw = partial(keyed_uniform, seed, indices)
    return ProjectedAscent(epsilon, step_size, steps, start, mode="eval", draw=draw, norm=norm)(
        model, images, objective
    )


def correct_predictions(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return which images are classified correctly."""
    with torch.no_grad():
        return model(images).argmax(dim=1) == labels
