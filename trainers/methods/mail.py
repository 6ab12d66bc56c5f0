"""MAIL-AT (Wang et al. 2021): cross-entropy weighted by a sigmoid of the probability margin."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from trainers import losses
from trainers.method import Method, hyperparameter
from trainers.methods.at import AT


@dataclass(frozen=True)
class MAIL(Method):
    start = "gauss"
    mode = "eval"

    slope: float = hyperparameter(10.0, low=0.0, high=100.0)
    bias: float = hyperparameter(-0.5, low=-1.0, high=1.0)  # sign as in the code; the paper's text has the opposite
    warmup_epochs: int = hyperparameter(76, low=0)  # epochs of plain AT; the code switches after 0-based epoch 75

    def at_epoch(self, epoch):
        return AT() if epoch < self.warmup_epochs else self

    def loss(self, model, images, labels, attack):
        adversarial = attack(model, images, lambda logits: F.cross_entropy(logits, labels))
        logits = model(adversarial)
        weights = self.weights(losses.probability_margin(logits.detach(), labels))
        return (weights * losses.cross_entropy(logits, labels)).mean()

    def weights(self, margins):
        """Return the weights of the samples. They are not normalised over the batch; the factor 3 replaces that."""
        return 3 * torch.sigmoid(self.slope * (margins + self.bias))
