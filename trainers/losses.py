"""Losses on logits, per sample unless the name says otherwise: parts of methods, attacks and diagnostics."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def of_label(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the score of the true class."""
    return scores.gather(1, labels[:, None]).squeeze(1)


def without_label(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the scores with the true class at -inf, so that a maximum or logsumexp runs over the wrong classes."""
    return scores.scatter(1, labels[:, None], -torch.inf)


def largest_other(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the largest score of a wrong class."""
    return without_label(scores, labels).max(dim=1).values


def logit_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Return LM, the largest wrong logit minus the true one; negative if classified correctly."""
    return largest_other(logits, labels) - of_label(logits, labels)


def soft_logit_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Return SLM, which is LM with logsumexp in place of the maximum.

    It is negative if the true class has more than half of the probability.
    """
    return torch.logsumexp(without_label(logits, labels), dim=1) - of_label(logits, labels)


def probability_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the largest wrong probability minus the true one, in [-1, 1]; its sign is that of the logit margin."""
    return logit_margin(logits.softmax(dim=1), labels)


def cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Return cross-entropy; `label_smoothing` is spread uniformly over all classes, the true one included."""
    return F.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)


def ovr(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the one-vs-the-rest loss: -z_y + sum over all k of log(1 + exp z_k)."""
    # Above its threshold torch drops the logarithm; at the default of 20 this is visible in double precision.
    return F.softplus(logits, threshold=50).sum(dim=1) - of_label(logits, labels)


def hardest(margins: Tensor, percent: int) -> Tensor:
    """Return a mask of the floor(percent·B/100) samples with the largest margins; ties go to the first in the batch."""
    count = percent * len(margins) // 100
    order = torch.sort(margins, descending=True, stable=True).indices
    return torch.zeros_like(margins, dtype=torch.bool).index_fill_(0, order[:count], True)


def switched(logits: Tensor, labels: Tensor, hard: Tensor, weight: float, label_smoothing: float = 0.0) -> Tensor:
    """Return SOVR's loss of each sample: weighted OVR where `hard`, cross-entropy elsewhere."""
    easy_loss = cross_entropy(logits, labels, label_smoothing)
    return torch.where(hard, weight * ovr(logits, labels), easy_loss)


def kl(logits: Tensor, other: Tensor) -> Tensor:
    """Return KL(p ‖ p') of the softmax of `logits` and of `other`; gradients flow through both."""
    return F.kl_div(other.log_softmax(dim=1), logits.log_softmax(dim=1), reduction="none", log_target=True).sum(dim=1)


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the predicted distribution, in nats."""
    log_probabilities = logits.log_softmax(dim=1)
    return -(log_probabilities.exp() * log_probabilities).sum(dim=1)


def wrong_class_term(logits: Tensor, labels: Tensor) -> Tensor:
    """Return MART's -log(1 - p_k̂) for the most likely wrong class k̂, with the official code's guards."""
    return -torch.log(1.0001 - largest_other(logits.softmax(dim=1), labels) + 1e-12)


def cw(logits: Tensor, labels: Tensor, confidence: float = 50.0) -> Tensor:
    """Return the Carlini-Wagner margin, to be maximised, clamped as in advertorch.

    It is flat only for images that are right with a margin above `confidence`.
    """
    return (logit_margin(logits, labels) + confidence).clamp(min=0.0)


def cw_clamped_above(logits: Tensor, labels: Tensor, confidence: float = 50.0) -> Tensor:
    """Return the margin clamped as in GAIRAT and SEAT.

    It is flat for images that are wrong by more than `confidence`; with 0, as soon as an image is misclassified.
    """
    return -(confidence - logit_margin(logits, labels)).clamp(min=0.0)
