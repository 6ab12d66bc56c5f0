"""Losses on logits, per sample unless a name says otherwise; building blocks of methods, attacks, diagnostics."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def of_label(scores: Tensor, labels: Tensor) -> Tensor:
    """The score of the true class."""
    return scores.gather(1, labels[:, None]).squeeze(1)


def without_label(scores: Tensor, labels: Tensor) -> Tensor:
    """The scores with the true class at -inf, so that a maximum or logsumexp runs over the others."""
    return scores.scatter(1, labels[:, None], -torch.inf)


def largest_other(scores: Tensor, labels: Tensor) -> Tensor:
    return without_label(scores, labels).max(dim=1).values


def logit_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """LM: largest other logit minus the true one; negative when classified correctly."""
    return largest_other(logits, labels) - of_label(logits, labels)


def soft_logit_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """SLM: LM with logsumexp in place of the maximum; negative when the true class has more than half the mass."""
    return torch.logsumexp(without_label(logits, labels), dim=1) - of_label(logits, labels)


def probability_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Largest other probability minus the true one, in [-1, 1]; the sign of the logit margin."""
    return logit_margin(logits.softmax(dim=1), labels)


def cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Smoothing is uniform over all classes, the true one included."""
    return F.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)


def ovr(logits: Tensor, labels: Tensor) -> Tensor:
    """One-vs-the-rest: -z_y + sum over all k of log(1 + exp z_k)."""
    # Beyond its threshold torch drops the logarithm; at the default of 20 that is seen in double precision.
    return F.softplus(logits, threshold=50).sum(dim=1) - of_label(logits, labels)


def hardest(margins: Tensor, percent: int) -> Tensor:
    """Marks the floor(percent·B/100) samples with the largest margins; of equal ones the first in the batch."""
    count = percent * len(margins) // 100
    order = torch.sort(margins, descending=True, stable=True).indices
    return torch.zeros_like(margins, dtype=torch.bool).index_fill_(0, order[:count], True)


def switched(logits: Tensor, labels: Tensor, hard: Tensor, weight: float, label_smoothing: float = 0.0) -> Tensor:
    """SOVR's loss of each sample: weighted OVR where `hard`, cross-entropy elsewhere."""
    easy_loss = cross_entropy(logits, labels, label_smoothing)
    return torch.where(hard, weight * ovr(logits, labels), easy_loss)


def kl(logits: Tensor, other: Tensor) -> Tensor:
    """KL(p ‖ p') of the softmax of `logits` and of `other`; gradients flow through both."""
    return F.kl_div(other.log_softmax(dim=1), logits.log_softmax(dim=1), reduction="none", log_target=True).sum(dim=1)


def entropy(logits: Tensor) -> Tensor:
    log_probabilities = logits.log_softmax(dim=1)
    return -(log_probabilities.exp() * log_probabilities).sum(dim=1)


def wrong_class_term(logits: Tensor, labels: Tensor) -> Tensor:
    """MART's -log(1 - p_k̂) for the likeliest wrong class k̂, with the official guards."""
    return -torch.log(1.0001 - largest_other(logits.softmax(dim=1), labels) + 1e-12)


def cw(logits: Tensor, labels: Tensor, confidence: float = 50.0) -> Tensor:
    """Carlini-Wagner margin to maximise, as advertorch clamps it: flat only when very confidently right."""
    return (logit_margin(logits, labels) + confidence).clamp(min=0.0)


def cw_clamped_above(logits: Tensor, labels: Tensor, confidence: float = 50.0) -> Tensor:
    """The margin as GAIRAT and SEAT clamp it: flat once very wrong; with confidence 0 as soon as misclassified."""
    return -(confidence - logit_margin(logits, labels)).clamp(min=0.0)
