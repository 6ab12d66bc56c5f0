"""SOVR: (M, lam). The paper's grid is M = 20, …, 80, 100 by lambda = 0.2, …, 0.8, 1.0."""

from optuna.distributions import FloatDistribution, IntDistribution

SPACES = {
    "paper": {"M": IntDistribution(20, 100, step=20), "lam": FloatDistribution(0.2, 1.0, step=0.2)},
    # Contains every value that the paper reports: (30, 0.4) and (50, 0.5) lie between the points of its grid.
    "fine": {"M": IntDistribution(20, 100, step=10), "lam": FloatDistribution(0.2, 1.0, step=0.1)},
    "continuous": {"M": IntDistribution(0, 100), "lam": FloatDistribution(0.05, 2.0, log=True)},
}

PAPER_VALUES = {
    "default": {"M": 40, "lam": 0.4},
    "cifar10/wrn_34_10": {"M": 30, "lam": 0.4},
    # The text says 0.6; the main table has the numbers of 0.5 in the table that varies lambda.
    "cifar100": {"M": 50, "lam": 0.6},
    "svhn": {"M": 20, "lam": 0.2},
    "+awp": {"M": 40, "lam": 0.4},
    "+seat": {"M": 50, "lam": 0.5},
    "+ddpm": {"M": 40, "lam": 0.2},
}
