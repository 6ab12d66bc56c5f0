"""Adversarial training with a constant weight on the one-vs-the-rest loss, for the trajectories of margins."""

from dataclasses import dataclass

import torch.nn.functional as F

from trainers import losses
from trainers.method import Method, hyperparameter


@dataclass(frozen=True)
class WeightedOVR(Method):
    display = "Weighted OVR"

    weight: float = hyperparameter(1.0, low=0.0, high=100.0)

    def loss(self, model, images, labels, attack):
        adversarial = attack(model, images, lambda logits: F.cross_entropy(logits, labels))
        return self.weight * losses.ovr(model(adversarial), labels).mean()
