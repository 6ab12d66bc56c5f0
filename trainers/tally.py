"""Sums over the batches of an epoch, kept on the device: the host asks for them every so many steps, not in each."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from trainers import losses

SETTLED_EVERY = 50  # steps; a device that is asked for a number in each step waits for its host in each step


class Collapsed(Exception):
    """Training has left the realm of numbers; the message says how, `step` how many steps were done before."""

    def __init__(self, message: str, step: int | None = None) -> None:
        super().__init__(message)
        self.step = step


class Tally:
    """`step` counts the steps before this epoch."""

    def __init__(self, device: torch.device, step: int = 0) -> None:
        self.samples = self.scored = 0
        self.loss = 0.0
        self.correct = torch.zeros((), dtype=torch.int64, device=device)
        self.margin = torch.zeros((), dtype=torch.float64, device=device)
        self._step = step
        self._unsettled: list[tuple[Tensor, int]] = []

    def add(self, loss: Tensor, logits: Tensor | None, labels: Tensor) -> None:
        """Of one step; raises Collapsed, at the latest some steps later, if the loss is no number."""
        self._unsettled.append((loss, len(labels)))
        if logits is not None and len(logits) == len(labels):  # else a method without a forward of the whole batch
            labels = labels.argmax(1) if labels.dim() == 2 else labels  # of mixed images the larger share
            self.scored += len(labels)
            self.correct += (logits.argmax(1) == labels).sum()
            self.margin += losses.logit_margin(logits, labels).double().sum()
        if len(self._unsettled) == SETTLED_EVERY:
            self.settle()

    def settle(self) -> None:
        """Ask for the losses of the steps since the last time, all at once."""
        if not self._unsettled:
            return
        values = torch.stack([loss for loss, _ in self._unsettled]).tolist()
        sizes = [size for _, size in self._unsettled]
        self._unsettled = []
        for value, size in zip(values, sizes, strict=True):
            if not math.isfinite(value):
                raise Collapsed(f"the training loss is {value}", self._step)
            self._step += 1
            self.samples += size
            self.loss += value * size

    def row(self) -> dict[str, Any]:
        """Means over the epoch; accuracy and margin are those of the training forwards, on attacked images."""
        self.settle()
        return {
            "train_loss": self.loss / self.samples,
            "train_accuracy": self.correct.item() / self.scored if self.scored else None,
            "train_margin": self.margin.item() / self.scored if self.scored else None,
        }
