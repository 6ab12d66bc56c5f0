"""What a cell may measure, and how attacks are named in it."""

from __future__ import annotations

# Measures from the diagnostics' summary, and the factor to what is shown: rates become percent, norms stay.
DIAGNOSTICS = {
    "generalization_gap": 100.0,
    "train_potentially_misclassified": 100.0,
    "test_potentially_misclassified": 100.0,
    "gradient_norm_ce_label": 1.0,
    "gradient_norm_ce_runner_up": 1.0,
    "gradient_norm_ce_random": 1.0,
    "gradient_norm_logit_max": 1.0,
}

# What tables and figures show of the last epoch, as the paper does, wherever a study's accuracies are taken.
OWN_CHECKPOINT = {"margin": "last", "generalization_gap": "last"}

# Those that are shares of images, and where the summary says of how many.
SHARES = {
    "generalization_gap": ("images_train", "images_test"),
    "train_potentially_misclassified": ("images_train",),
    "test_potentially_misclassified": ("images_test",),
}


def no_ball(attack: str) -> bool:
    """Measured on images as they are, whatever the norm."""
    return attack == "clean" or attack.startswith("corruption-")


def in_norm(attack: str, norm: str) -> str:
    """A name that tells norms apart: pgd-20 in L∞, pgd-20@l2."""
    return attack if norm == "linf" or no_ball(attack) else f"{attack}@{norm}"


def measure_in(name: str, own: str) -> str:
    """The same from the view of a study whose own norm needs no mention."""
    base, _, norm = name.partition("@")
    return base if no_ball(base) or (norm or "linf") == own else f"{base}@{norm or 'linf'}"
