"""EWAT: whether its weights carry gradients, which the paper does not state."""

from optuna.distributions import CategoricalDistribution

SPACES = {
    "paper": {"detach_weights": CategoricalDistribution((True, False))},
    "continuous": {"detach_weights": CategoricalDistribution((True, False))},
}

PAPER_VALUES = {"default": {"detach_weights": True}}
