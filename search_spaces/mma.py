"""MMA: d_max, the margin beyond which a sample adds no loss; its authors report 12, 20 and 32 of 255.

It is a length in the ball's norm. The values are multiples of the training radius: the authors' values at 8/255.
"""

from optuna.distributions import CategoricalDistribution, FloatDistribution

IN_RADII = {"d_max": 1.0}  # hyperparameters that are lengths, with their largest legal value

SPACES = {
    "paper": {"d_max": CategoricalDistribution((1.5, 2.5, 4.0))},
    "continuous": {"d_max": FloatDistribution(0.6375, 7.96875, log=True)},
}

PAPER_VALUES = {"default": {"d_max": 4.0}}
