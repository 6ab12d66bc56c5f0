"""+seat: self-ensemble adversarial training (Wang & Wang 2022), a running average of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from trainers.values import Unit
from trainers.wrapper import Hooks, Wrapper

if TYPE_CHECKING:
    from torch import nn


class Seat(Wrapper):
    """Settings of +seat."""

    display = "SEAT"
    state_copies = 1

    decay: Unit = Field(0.999, description="decay of the averaged weights, per step")

    def begin(self, model: nn.Module, steps: int) -> Hooks:
        from trainers.wrappers.training.weight_averaging import SeatAverage

        return SeatAverage(model, self.decay)
