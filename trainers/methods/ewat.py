"""EWAT (Kim et al. 2021): adversarial training plus cross-entropy weighted by the entropy of the prediction."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from trainers import losses
from trainers.method import Method, hyperparameter


@dataclass(frozen=True)
class EWAT(Method):
    detach_weights: bool = hyperparameter(True, choices=(True, False))  # not in the paper; as in GAIRAT and MAIL

    def loss(self, model, images, labels, attack):
        adversarial = attack(model, images, lambda logits: F.cross_entropy(logits, labels))
        logits = model(adversarial)
        weights = self.weights(logits.detach() if self.detach_weights else logits)
        return ((1 + weights) * losses.cross_entropy(logits, labels)).mean()

    def weights(self, logits):
        entropy = losses.entropy(logits)
        # If every prediction is certain to the last bit, the mean is zero and all weights are zero.
        return entropy / entropy.mean().clamp(min=torch.finfo(entropy.dtype).tiny)
