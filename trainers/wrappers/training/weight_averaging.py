"""Averages of the weights during training: SEAT (Wang & Wang 2022) and that of the 1M-DDPM training."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from trainers.compat.torch_internals import batchnorms
from trainers.wrapper import Hooks


class Average(Hooks):
    """An averaged copy of the model, in eval mode, which is evaluated but never influences the training."""

    model: nn.Module

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    def state_dict(self) -> dict[str, Any]:
        return self.model.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state)


class SeatAverage(Average):
    """SEAT's average of parameters and buffers, with d = min(decay, (t+1)/(t+10)) from the first step on."""

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        super().__init__(model)
        self.decay = decay

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: int) -> None:
        decay = min(self.decay, (step + 1) / (step + 10))
        for average, current in zip(_tensors(self.model), _tensors(model), strict=True):
            if average.is_floating_point():
                average.lerp_(current, 1.0 - decay)
            else:
                # BatchNorm's counter: the official code assigns the float average, which is truncated.
                average.copy_(decay * average.double() + (1.0 - decay) * current.double())


class DdpmAverage(Average):
    """The 1M-DDPM average of parameters: a copy during warm-up, then τ with its own ramp.

    Buffers are those of the trained model.
    """

    def __init__(
        self, model: nn.Module, decay: float = 0.995, warmup_steps: float = 0, first_batchnorm_momentum: float = 1.0
    ) -> None:
        super().__init__(model)
        self.decay = decay
        self.warmup_steps = warmup_steps
        self.first_batchnorm_momentum = first_batchnorm_momentum

    def settings(self, model: nn.Module, step: int) -> AbstractContextManager[None]:
        return nullcontext() if step > 0 else batchnorm_momentum(model, self.first_batchnorm_momentum)

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: int) -> None:
        since = step + 1 - self.warmup_steps
        decay = 0.0 if since < 0 else min(self.decay, (1 + since) / (10 + since))
        for average, current in zip(self.model.parameters(), model.parameters(), strict=True):
            average.lerp_(current, 1.0 - decay)

    @torch.no_grad()
    def end_epoch(self, model: nn.Module) -> None:
        for average, current in zip(self.model.buffers(), model.buffers(), strict=True):
            average.copy_(current)


@contextmanager
def batchnorm_momentum(model: nn.Module, momentum: float) -> Iterator[None]:
    """Set BatchNorm's momentum; with 1, the running statistics become those of the current batch."""
    changed = [(module, module.momentum) for module in batchnorms(model)]
    for module, _ in changed:
        module.momentum = momentum
    try:
        yield
    finally:
        for module, before in changed:
            module.momentum = before


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]
