"""GAIRAT: Lambda, from the official code's -1 to beyond the paper's 3."""

from optuna.distributions import FloatDistribution

SPACES = {
    "paper": {"Lambda": FloatDistribution(-1.0, 4.0, step=1.0)},
    "continuous": {"Lambda": FloatDistribution(-2.0, 6.0)},
}

PAPER_VALUES = {"default": {"Lambda": 3.0}}
