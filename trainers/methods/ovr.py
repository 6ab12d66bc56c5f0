"""Adversarial training with the one-vs-the-rest loss on every sample; the attack still maximises cross-entropy."""

from dataclasses import dataclass

import torch.nn.functional as F

from trainers import losses
from trainers.method import Method


@dataclass(frozen=True)
class OVR(Method):
    def loss(self, model, images, labels, attack):
        adversarial = attack(model, images, lambda logits: F.cross_entropy(logits, labels))
        return losses.ovr(model(adversarial), labels).mean()
