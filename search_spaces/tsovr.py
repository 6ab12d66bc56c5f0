"""TSOVR: (M, lam). The paper's grid for lambda ends at 1.2."""

from optuna.distributions import FloatDistribution, IntDistribution

SPACES = {
    "paper": {"M": IntDistribution(20, 100, step=20), "lam": FloatDistribution(0.2, 1.2, step=0.2)},
    # Contains every value that the paper reports, including (50, 0.5) and the 1.6 with the 1M images.
    "fine": {"M": IntDistribution(20, 100, step=10), "lam": FloatDistribution(0.2, 1.2, step=0.1)},
    "fine+ddpm": {"M": IntDistribution(20, 100, step=10), "lam": FloatDistribution(0.2, 1.6, step=0.1)},
    "continuous": {"M": IntDistribution(0, 100), "lam": FloatDistribution(0.05, 2.0, log=True)},
}

PAPER_VALUES = {
    "default": {"M": 80, "lam": 0.8},
    "cifar10/wrn_34_10": {"M": 20, "lam": 0.8},
    "cifar100": {"M": 50, "lam": 0.5},
    "svhn": {"M": 20, "lam": 0.8},
    "+awp": {"M": 100, "lam": 1.2},
    "+ddpm": {"M": 100, "lam": 1.6},
}
