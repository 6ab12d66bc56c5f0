"""Standard training: cross-entropy on clean images."""

from dataclasses import dataclass

import torch.nn.functional as F

from trainers.method import Method


@dataclass(frozen=True)
class ST(Method):
    mixed_labels = True
    selects_on = "clean"
    trains_on = "clean"

    def loss(self, model, images, labels, attack):
        return F.cross_entropy(model(images), labels)
