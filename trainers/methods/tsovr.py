"""TSOVR: TRADES with SOVR's switch in place of the clean cross-entropy."""

from dataclasses import dataclass

from trainers import losses
from trainers.method import hyperparameter
from trainers.methods.trades import TRADES


@dataclass(frozen=True)
class TSOVR(TRADES):
    mixed_labels = False  # a margin needs a single label

    M: int = hyperparameter(80, low=0, high=100)  # percent
    lam: float = hyperparameter(0.8, low=0.0, high=10.0)
    # The paper does not say which margins choose the hard samples; the switched loss sees the clean ones.
    margin_on: str = hyperparameter("clean", choices=("clean", "adv"))

    def clean_loss(self, clean_logits, adversarial_logits, labels):
        chosen_by = clean_logits if self.margin_on == "clean" else adversarial_logits
        hard = losses.hardest(losses.logit_margin(chosen_by.detach(), labels), self.M)
        return losses.switched(clean_logits, labels, hard, self.lam, self.label_smoothing).mean()
