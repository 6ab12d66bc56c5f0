"""Sums over the batches of an epoch, kept on the device until the epoch ends."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainers import losses


class Tally:
    def __init__(self, device: torch.device) -> None:
        self.samples = self.scored = 0
        self.loss = 0.0
        self.correct = torch.zeros((), dtype=torch.int64, device=device)
        self.margin = torch.zeros((), dtype=torch.float64, device=device)

    def add(self, loss: float, logits: Tensor | None, labels: Tensor) -> None:
        self.samples += len(labels)
        self.loss += loss * len(labels)
        if logits is None or len(logits) != len(labels):
            return  # a method without a forward of the whole batch
        labels = labels.argmax(1) if labels.dim() == 2 else labels  # of mixed images the class with the larger share
        self.scored += len(labels)
        self.correct += (logits.argmax(1) == labels).sum()
        self.margin += losses.logit_margin(logits, labels).double().sum()

    def row(self) -> dict[str, Any]:
        """Means over the epoch; accuracy and margin are those of the training forwards, on attacked images."""
        return {
            "train_loss": self.loss / self.samples,
            "train_accuracy": self.correct.item() / self.scored if self.scored else None,
            "train_margin": self.margin.item() / self.scored if self.scored else None,
        }
