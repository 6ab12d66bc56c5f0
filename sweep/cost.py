"""What a study costs."""

from __future__ import annotations

from trainers.config import TrialConfig


def relative_cost(config: TrialConfig) -> float:
    """Passes through the network, roughly: enough to start the longest trial first."""
    recipe = config.recipe
    length = recipe.steps if recipe.steps is not None else recipe.epochs * 400
    base = config.method.split("+")[0]
    passes = {"st": 1.0, "mma": 3.0}.get(base, 1.0) * (1 if base == "st" else 1 + recipe.attack.steps)
    return length * (passes + (2.0 if config.awp else 0.0) + 1.0)
