"""MMA: d_max, the margin beyond which a sample adds no loss; its authors report 12, 20 and 32 of 255."""

from optuna.distributions import CategoricalDistribution, FloatDistribution

SPACES = {
    "paper": {"d_max": CategoricalDistribution((0.0471, 0.0784, 0.1255))},
    "continuous": {"d_max": FloatDistribution(0.02, 0.25, log=True)},
}

PAPER_VALUES = {"default": {"d_max": 0.1255}}
