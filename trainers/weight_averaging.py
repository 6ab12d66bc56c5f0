"""Averaged weights beside the trained ones: SEAT (Wang & Wang 2022) and the rule of the 1M-DDPM training."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainers.wrapper import Hooks


class Average(Hooks):
    """Keeps `model`, the averaged copy to evaluate, in eval mode; it never influences the training."""

    model: nn.Module

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    def state_dict(self) -> dict[str, Any]:
        return self.model.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state)


class SeatAverage(Average):
    """Parameters and buffers with d = min(decay, (t+1)/(t+10)), from the very first step on."""

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
                # BatchNorm's counter: the official code assigns the float average, which truncates it.
                average.copy_(decay * average.double() + (1.0 - decay) * current.double())


class DdpmAverage(Average):
    """Parameters only: a copy while warming up, then τ with its own ramp; buffers are the raw model's."""

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
    """In the first step of the 1M-DDPM setting: the running statistics start as those of the first batch."""
    changed = [(module, module.momentum) for module in model.modules() if isinstance(module, _BatchNorm)]
    for module, _ in changed:
        module.momentum = momentum
    try:
        yield
    finally:
        for module, before in changed:
            module.momentum = before


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]
