"""GAIRAT (Zhang et al. 2021): cross-entropy weighted by how few attack steps a sample survives."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from trainers import losses
from trainers.method import Method, hyperparameter
from trainers.methods.at import AT


@dataclass(frozen=True)
class GAIRAT(Method):
    mode = "eval"

    Lambda: float = hyperparameter(3.0, low=-20.0, high=20.0, infinite=True)  # inf: all weights are 1
    warmup_epochs: int = hyperparameter(50, low=0)  # epochs of plain AT
    weight_function: str = hyperparameter("Tanh", choices=("Tanh", "Sigmoid", "Discrete"))

    def at_epoch(self, epoch):
        return AT() if epoch < self.warmup_epochs else self

    def loss(self, model, images, labels, attack):
        adversarial, kappa = self.attacked(model, images, labels, attack)
        logits = model(adversarial)
        return (self.weights(kappa.to(logits.dtype), attack.steps) * losses.cross_entropy(logits, labels)).mean()

    def attacked(self, model, images, labels, attack):
        """Return adversarial images and κ, the number of iterates before each step that are still classified correctly.

        This is how the official code counts. The paper's "least number of steps that succeeds" differs if a sample
        recovers.
        """
        kappa = torch.zeros_like(labels)
        adversarial = attack(
            model,
            images,
            lambda logits: F.cross_entropy(logits, labels),
            observe=lambda logits: kappa.add_(logits.argmax(dim=1) == labels),
        )
        return adversarial, kappa

    def weights(self, kappa, steps):
        """Return the weights of the samples, normalised to mean 1 over the batch."""
        half = max(steps // 2, 1)
        rise = self.Lambda + 5 * (half - kappa) / half
        if self.weight_function == "Discrete":
            weights = (steps + 1 - kappa) / (steps + 1)
        else:
            # sigmoid(2a) is (1 + tanh a)/2 without its cancellation, so that no batch sums to zero.
            weights = torch.sigmoid(2 * rise if self.weight_function == "Tanh" else rise)
        return weights / weights.mean()
