"""+seat: self-ensemble adversarial training (Wang & Wang 2022), an average of the weights beside the trained ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from trainers.values import Unit
from trainers.wrapper import Hooks, Wrapper

if TYPE_CHECKING:
    from torch import nn


class Seat(Wrapper):
    display = "SEAT"
    state_copies = 1

    decay: Unit = Field(0.999, description="of the average of the weights, per step")

    def begin(self, model: nn.Module, steps: int) -> Hooks:
        from trainers.weight_averaging import SeatAverage

        return SeatAverage(model, self.decay)
