"""MART (Wang et al. 2020): boosted cross-entropy on x' plus a KL term that weights misclassified samples more."""

from dataclasses import dataclass

import torch.nn.functional as F

from trainers import losses
from trainers.method import Method, hyperparameter


@dataclass(frozen=True)
class MART(Method):
    start = "gauss"
    mode = "eval"

    beta: float = hyperparameter(6.0, low=0.0, high=100.0)  # called lambda in the paper

    def loss(self, model, images, labels, attack):
        adversarial = attack(model, images, lambda logits: F.cross_entropy(logits, labels))
        clean_logits, adversarial_logits = model(images), model(adversarial)
        boosted = (
            F.cross_entropy(adversarial_logits, labels) + losses.wrong_class_term(adversarial_logits, labels).mean()
        )
        # Constants as in the official code. Nothing is detached, not even the weight 1 - p_y.
        probabilities = clean_logits.softmax(dim=1)
        log_adversarial = (adversarial_logits.softmax(dim=1) + 1e-12).log()
        divergence = (probabilities * (clean_logits.log_softmax(dim=1) - log_adversarial)).sum(dim=1)
        misclassified = 1.0000001 - losses.of_label(probabilities, labels)
        return boosted + self.beta * (divergence * misclassified).mean()
