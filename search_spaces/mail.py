"""MAIL: slope and bias, the paper's gamma and beta; both signs of the bias, on which paper and code disagree."""

from optuna.distributions import FloatDistribution

SPACES = {
    "paper": {"slope": FloatDistribution(5.0, 20.0, step=5.0), "bias": FloatDistribution(-0.5, 0.5, step=0.25)},
    "continuous": {"slope": FloatDistribution(1.0, 40.0, log=True), "bias": FloatDistribution(-1.0, 1.0)},
}

PAPER_VALUES = {"default": {"slope": 10.0, "bias": -0.5}}
