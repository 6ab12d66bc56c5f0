"""TRADES: beta, from 1 to 6 as its authors report, and somewhat beyond."""

from optuna.distributions import FloatDistribution

SPACES = {
    "paper": {"beta": FloatDistribution(1.0, 10.0, step=1.0)},
    "continuous": {"beta": FloatDistribution(0.5, 20.0, log=True)},
}

PAPER_VALUES = {"default": {"beta": 6.0}}
