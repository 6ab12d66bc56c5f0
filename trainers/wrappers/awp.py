"""+awp: adversarial weight perturbation (Wu et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from trainers.values import Positive
from trainers.wrapper import Hooks, Wrapper

if TYPE_CHECKING:
    from torch import nn


class Awp(Wrapper):
    """Settings of +awp."""

    display = "AWP"
    passes = 2.0
    few_epochs = {"warmup_epochs": 2}

    gamma: Positive = Field(0.01, description="size of the perturbation, relative to each layer's weights")
    warmup_epochs: int = Field(10, ge=0, description="first epoch with perturbation, counted from 1")

    def begin(self, model: nn.Module, steps: int) -> Hooks:
        from trainers.wrappers.training.weight_perturbation import WeightPerturbation

        return WeightPerturbation(self.gamma, self.warmup_epochs)
