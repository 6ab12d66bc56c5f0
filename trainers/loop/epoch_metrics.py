"""Metrics of an epoch, summed on the device. The host reads them every few steps rather than in each."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from trainers import losses

SETTLED_EVERY = 50  # steps between two reads; each read makes the device wait for its host


class Collapsed(Exception):
    """A training that cannot continue. The message says why, `step` how many steps were completed before."""

    def __init__(self, message: str, step: int | None = None) -> None:
        super().__init__(message)
        self.step = step


class Tally:
    """The running sums of one epoch; `step` counts the steps before it."""

    def __init__(self, device: torch.device, step: int = 0) -> None:
        self.samples = self.scored = 0
        self.loss = 0.0
        self.correct = torch.zeros((), dtype=torch.int64, device=device)
        self.margin = torch.zeros((), dtype=torch.float64, device=device)
        self._step = step
        self._unsettled: list[tuple[Tensor, int]] = []

    def add(self, loss: Tensor, logits: Tensor | None, labels: Tensor) -> None:
        """Add one step. Raise Collapsed, a few steps later at most, if its loss is NaN or infinite."""
        self._unsettled.append((loss, len(labels)))
        if logits is not None and len(logits) == len(labels):  # otherwise the method never forwards the whole batch
            labels = (
                labels.argmax(1) if labels.dim() == 2 else labels
            )  # for mixed images, the class with the larger share
            self.scored += len(labels)
            self.correct += (logits.argmax(1) == labels).sum()
            self.margin += losses.logit_margin(logits, labels).double().sum()
        if len(self._unsettled) == SETTLED_EVERY:
            self.settle()

    def settle(self) -> None:
        """Read the losses of all steps since the last call, at once. Raise Collapsed if one is NaN or infinite."""
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
        """Return means over the epoch. Accuracy and margin come from the training forwards, on attacked images."""
        self.settle()
        return {
            "train_loss": self.loss / self.samples,
            "train_accuracy": self.correct.item() / self.scored if self.scored else None,
            "train_margin": self.margin.item() / self.scored if self.scored else None,
        }
