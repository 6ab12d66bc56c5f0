"""The measures that a cell may have, and how attacks are named among them."""

from __future__ import annotations

# Measures from the diagnostics' summary, each with its factor for display: rates become percent, norms stay.
DIAGNOSTICS = {
    "generalization_gap": 100.0,
    "train_potentially_misclassified": 100.0,
    "test_potentially_misclassified": 100.0,
    "gradient_norm_ce_label": 1.0,
    "gradient_norm_ce_runner_up": 1.0,
    "gradient_norm_ce_random": 1.0,
    "gradient_norm_logit_max": 1.0,
}

# Measures of the last epoch, as in the paper, whichever checkpoint the study's accuracies belong to.
OWN_CHECKPOINT = {"margin": "last", "generalization_gap": "last"}

# Measures that are shares of images, with the summary's entries for the number of images.
SHARES = {
    "generalization_gap": ("images_train", "images_test"),
    "train_potentially_misclassified": ("images_train",),
    "test_potentially_misclassified": ("images_test",),
}


def no_ball(attack: str) -> bool:
    """Return whether the attack uses images as they are, without a radius or norm."""
    return attack == "clean" or attack.startswith("corruption-")


def in_norm(attack: str, norm: str) -> str:
    """Return a name that is unique across norms: pgd-20 in L∞, pgd-20@l2 in L2."""
    return attack if norm == "linf" or no_ball(attack) else f"{attack}@{norm}"


def measure_in(name: str, own: str) -> str:
    """Return the name for use in a study whose own norm needs no mention."""
    base, _, norm = name.partition("@")
    return base if no_ball(base) or (norm or "linf") == own else f"{base}@{norm or 'linf'}"
