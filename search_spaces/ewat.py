"""EWAT: whether its weights carry gradients, which the paper leaves open."""

from optuna.distributions import CategoricalDistribution

SPACES = {
    "paper": {"detach_weights": CategoricalDistribution((True, False))},
    "continuous": {"detach_weights": CategoricalDistribution((True, False))},
}

PAPER_VALUES = {"default": {"detach_weights": True}}
