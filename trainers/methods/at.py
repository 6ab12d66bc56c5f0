"""Adversarial training (Madry et al. 2018): cross-entropy on the images that maximise it."""

from dataclasses import dataclass

import torch.nn.functional as F

from trainers.method import Method


@dataclass(frozen=True)
class AT(Method):
    mixed_labels = True

    def loss(self, model, images, labels, attack):
        adversarial = attack(model, images, lambda logits: F.cross_entropy(logits, labels))
        return F.cross_entropy(model(adversarial), labels)
