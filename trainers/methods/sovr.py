"""SOVR, the switching one-vs-the-rest loss: OVR for the M % with the smallest margins, cross-entropy elsewhere."""

from dataclasses import dataclass

import torch.nn.functional as F

from trainers import losses
from trainers.method import Method, hyperparameter


@dataclass(frozen=True)
class SOVR(Method):
    M: int = hyperparameter(40, low=0, high=100)  # percent
    lam: float = hyperparameter(0.4, low=0.0, high=10.0)
    label_smoothing: float = hyperparameter(0.0, low=0.0, high=1.0)  # in the cross-entropy part only

    def loss(self, model, images, labels, attack):
        adversarial = attack(model, images, lambda logits: F.cross_entropy(logits, labels))
        logits = model(adversarial)
        hard = losses.hardest(losses.logit_margin(logits.detach(), labels), self.M)
        # One mean over the whole batch, not one per part.
        return losses.switched(logits, labels, hard, self.lam, self.label_smoothing).mean()
