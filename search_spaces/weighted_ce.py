"""Weighted cross-entropy: the weight, over the range of the trajectories study."""

from optuna.distributions import CategoricalDistribution, FloatDistribution

SPACES = {
    "paper": {"weight": CategoricalDistribution((0.1, 0.5, 1.0, 2.0, 5.0))},
    "continuous": {"weight": FloatDistribution(0.1, 5.0, log=True)},
}

PAPER_VALUES = {"default": {"weight": 1.0}}
