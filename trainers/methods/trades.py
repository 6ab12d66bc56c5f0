"""TRADES (Zhang et al. 2019): clean cross-entropy plus β times KL(p(x) ‖ p(x')), which the attack maximises."""

from dataclasses import dataclass

import torch

from trainers import losses
from trainers.method import Method, hyperparameter


@dataclass(frozen=True)
class TRADES(Method):
    mixed_labels = True
    start = "gauss"
    mode = "eval"

    beta: float = hyperparameter(6.0, low=0.0, high=100.0)
    label_smoothing: float = hyperparameter(0.0, low=0.0, high=1.0)
    # Order of the train-mode forwards, which affects BatchNorm's buffers only: awp x', x, x; original x, x', x;
    # ddpm x, x'.
    forwards: str = hyperparameter("awp", choices=("awp", "original", "ddpm"))

    def loss(self, model, images, labels, attack):
        target = attack.logits(model, images)
        adversarial = attack(model, images, lambda logits: losses.kl(target, logits))
        clean_logits, adversarial_logits = self.both_logits(model, images, adversarial)
        divergence = losses.kl(clean_logits, adversarial_logits).mean()
        return self.clean_loss(clean_logits, adversarial_logits, labels) + self.beta * divergence

    def clean_loss(self, clean_logits, adversarial_logits, labels):
        """Return the loss on clean images; subclasses may replace it."""
        return losses.cross_entropy(clean_logits, labels, self.label_smoothing).mean()

    def both_logits(self, model, images, adversarial):
        """Return clean and adversarial logits, from forwards in the chosen order."""
        if self.forwards == "ddpm":
            return model(images), model(adversarial)
        if self.forwards == "original":
            _move_buffers(model, images)
            adversarial_logits = model(adversarial)
        else:
            adversarial_logits = model(adversarial)
            _move_buffers(model, images)
        return model(images), adversarial_logits


def _move_buffers(model, images):
    """Update BatchNorm's buffers. The official code forwards x twice with equal logits; one needs no backward."""
    with torch.no_grad():
        model(images)
