"""The function that computes each family of oracle cases, and its tolerance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.conformance import attack_families, logit_families, method_families, training_families
from tests.conformance.comparison import Tolerance
from tests.conformance.oracle import Case

NAMES: dict[ModuleType, str] = {
    method_families: "at_ce ovr sovr tsovr trades_loss trades_full ddpm_trades_full mart_loss mart_full mail_at ewat "
    "gair_weights gairat_loss ga_pgd mma_step",
    attack_families: "awp_attack_pgd awp_pgd20_eval pgd_noinit fgsm logit_scaling_pgd spsa apgd_single_run "
    "apgd_t_single_run fab_t_single_run square_p_schedule potentially_misclassified",
    logit_families: "cw_advertorch cw_gairat cw_rade margin_spsa slm dlr dlr_targeted ce_smooth mart_bce_part",
    training_families: "at_iteration awp_at_step awp_trades_step seat_ema ddpm_ema lr_awp_piecewise lr_seat "
    "lr_ddpm_onecycle lambert_trajectories",
}

SIGN_STEPS = Tolerance(relative=0.0, absolute=1e-12)  # a wrong sign is off by a whole step, rounding by far less
FLOAT32 = Tolerance(relative=0.0, absolute=1e-5)  # FAB as shipped computes in single precision


@dataclass(frozen=True)
class Family:
    name: str
    compute: Callable[[Case], dict[str, Any]]

    def tolerance(self, field: str) -> Tolerance:
        if self.name == "fab_t_single_run":
            return FLOAT32
        return SIGN_STEPS if field in ("x_adv", "delta") and self.name != "spsa" else Tolerance()


FAMILIES = {name: Family(name, getattr(module, name)) for module, names in NAMES.items() for name in names.split()}
