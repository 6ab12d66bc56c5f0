"""What we use of pyautoattack beyond `AutoAttack` and its settings, which are all that it documents.

Its components run one by one, in batches of our own, so that no verdict depends on shards. Three of them are subclassed
in `trainers/attacks/perturbation/`: with the package's draws and decisions, but an image that is fooled gets no further
step. If the package no longer called what we override, its own loop would run instead, without a message.
Therefore every name is written down here and checked by a test.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import NamedTuple

import torch
from pyautoattack import checks
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import Tensor, nn

LOGGER = "auto-attack"  # warns of defences; records keep its warnings

Signatures = Mapping[str, tuple[str, ...]]  # the parameters of each method or function

OVERRIDDEN: Mapping[type, Signatures] = {
    APGDAttack: {"attack_single_run": ("x", "y", "x_init")},
    APGDAttack_targeted: {"attack_single_run": ("x", "y", "x_init")},
    FABAttack_PT: {"perturb": ("x", "y")},
    SquareAttack: {"attack_single_run": ("x", "y")},
}
CALLED: Mapping[type, Signatures] = {
    APGDAttack: {"normalize": ("x",), "dlr_loss": ("x", "y")},
    APGDAttack_targeted: {"normalize": ("x",), "dlr_loss_targeted": ("x", "y")},
    FABAttack_PT: {},
    SquareAttack: {"random_choice": ("shape",), "p_selection": ("it",)},
}
_APGD = (
    *("model", "loss", "norm", "eps", "n_iter", "n_restarts", "eot_iter", "topk", "use_largereps", "seed", "device"),
    *("logger", "y_target"),
)
# What is read of a component: by our loops, and of those of `AutoAttack`, which ours take their settings from.
SETTINGS: Mapping[type, tuple[str, ...]] = {
    APGDAttack: _APGD,
    APGDAttack_targeted: (*_APGD, "n_target_classes"),
    FABAttack_PT: (
        *("predict", "norm", "eps", "n_iter", "n_restarts", "alpha_max", "eta", "beta"),
        *("seed", "targeted", "n_target_classes"),
    ),
    SquareAttack: ("predict", "norm", "eps", "n_queries", "n_restarts", "p_init", "rescale_schedule", "seed"),
}
CHECKS: Signatures = {
    "check_randomized": ("model", "x", "y", "bs", "n", "alpha", "logger"),
    "check_range_output": ("model", "x", "alpha", "logger"),
    "check_dynamic": ("model", "x", "is_tf_model", "logger"),
    "check_n_classes": ("n_cls", "attacks_to_run", "apgd_targets", "fab_targets", "logger"),
    "check_square_sr": ("acc_dict", "alpha", "logger"),
    "check_zero_gradients": ("grad", "logger"),
}


class Schedule(NamedTuple):
    """When Auto-PGD decides about the length of its steps."""

    period: int  # steps until the first decision
    shortest: int  # period
    shrinking: int  # of the period after each decision
    share: float  # of the period's steps that must have climbed


def schedule(attack: APGDAttack) -> Schedule:
    """Return the schedule that the package has derived from the number of steps and keeps for its own loop."""
    return Schedule(attack.n_iter_2, attack.n_iter_min, attack.size_decr, attack.thr_decr)


def check_dynamic(model: nn.Module, images: Tensor, logger: logging.Logger) -> None:
    """Warn of a model that computes gradients in its forward pass.

    The package counts them in a global that it never resets, and drops a debugger's trace function.
    """
    tracer = sys.gettrace()
    checks.funcs.update(dict.fromkeys(checks.funcs, 0))
    try:
        with torch.no_grad():
            checks.check_dynamic(model, images, False, logger=logger)
    finally:
        sys.settrace(tracer)
