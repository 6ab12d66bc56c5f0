"""One iteration of training, in the order of the official loop (METHODS.md §2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainers.attacks.perturbation.merged_forwards import WatchedAttack
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.method import Attack, Batch, Method
from trainers.wrapper import Hooks


@dataclass(frozen=True)
class CheckedLoss(Method):
    """A method whose loss is checked. Torch's own errors do not name the method; these do."""

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
    """The outcome of one training step."""

    loss: Tensor  # one number, left on its device: reading it waits for the device
    logits: Tensor | None  # of the training forward, on attacked images if the loss has such a forward
    clean_logits: Tensor | None  # of the extra forward after the update


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
    """Attack, compute the loss, update and, as in the official loop, forward the clean images once more in train mode.

    That last forward was meant for logging, but it updates BatchNorm's buffers: without it the model differs.
    """
    model.train()
    checked: Method = CheckedLoss(method)
    wrapped = checked
    for wrapper in wrappers:
        wrapped = wrapper.around(wrapped)
    # A wrapper around the loss may change the weights after the attack; then the two forwards differ.
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
