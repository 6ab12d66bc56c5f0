"""One iteration of training, in the order of the official loop (METHODS.md §2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainers.method import Attack, Batch, Method
from trainers.perturbation.projected_ascent import ProjectedAscent
from trainers.watched_attack import WatchedAttack
from trainers.wrapper import Hooks


@dataclass(frozen=True)
class CheckedLoss(Method):
    """The method, with one sentence where its loss is nothing to train on: torch's own words name no method."""

    method: Method

    def batch_loss(self, model: nn.Module, batch: Batch, attack: Attack) -> Tensor:
        loss: object = self.method.batch_loss(model, batch, attack)
        name = type(self.method).__name__
        if not isinstance(loss, Tensor):
            raise TypeError(f"{name}: loss must return a tensor, but returned {type(loss).__name__}")
        if loss.numel() != 1:
            raise ValueError(
                f"{name}: loss must return one number, but it has shape {tuple(loss.shape)}: take its mean"
            )
        if not loss.requires_grad:
            raise ValueError(
                f"{name}: the loss has no gradient: it does not depend on the model's weights, or was detached"
            )
        return loss


@dataclass
class StepResult:
    loss: Tensor  # one number, left on its device: whoever asks for it waits for the device
    logits: Tensor | None  # of the training forward, on the attacked images where the loss has one
    clean_logits: Tensor | None  # of the logging forward, after the update


def training_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    method: Method,
    batch: Batch,
    attack: ProjectedAscent,
    *,
    wrappers: Sequence[Hooks] = (),
    log_clean_forward: bool = True,
) -> StepResult:
    """Attack, loss, update and, as the official loop does, one more train-mode forward of the clean images.

    That last forward was for logging, but it moves BatchNorm's buffers: without it the model is another one.
    """
    model.train()
    checked: Method = CheckedLoss(method)
    wrapped = checked
    for wrapper in wrappers:
        wrapped = wrapper.around(wrapped)
    # A wrapper around the loss may change the weights after the attack, so that their forwards are not the same.
    watched = WatchedAttack(attack, merges_forward=wrapped is checked)
    with watched.watching(model):
        loss = wrapped.batch_loss(model, batch, watched)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for wrapper in wrappers:
        wrapper.after_update(model)
    clean_logits = None
    if log_clean_forward:
        with torch.no_grad():
            clean_logits = model(batch.images)
    return StepResult(loss.detach().reshape(()), watched.recorded, clean_logits)
