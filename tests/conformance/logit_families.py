"""Families on bare logits: the value of each loss, and the gradient of its sum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tests.conformance.oracle import Case
from trainers import losses
from trainers.attacks import parse
from trainers.attacks.perturbation import autoattack


def _value_and_gradient(case: Case, loss: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Any]:
    logits = case.logits.requires_grad_()
    value = loss(logits, case.labels)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    return {"value": value, "grad_of_sum": gradient}


def _summed(case: Case, loss: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Any]:
    """Return the summed value, for official losses that return one number per batch."""
    found = _value_and_gradient(case, loss)
    return found | {"value": found["value"].sum()}


def slm(case: Case) -> dict[str, Any]:
    return _value_and_gradient(case, losses.soft_logit_margin)


def margin_spsa(case: Case) -> dict[str, Any]:
    return _value_and_gradient(case, losses.logit_margin)


def ce_smooth(case: Case) -> dict[str, Any]:
    return _value_and_gradient(case, partial(losses.cross_entropy, label_smoothing=case.number("smoothing")))


def mart_bce_part(case: Case) -> dict[str, Any]:
    """Return MART's sum of the cross-entropy and the term of the most likely wrong class."""
    return _value_and_gradient(case, lambda z, y: losses.cross_entropy(z, y) + losses.wrong_class_term(z, y))


def cw_advertorch(case: Case) -> dict[str, Any]:
    return _value_and_gradient(case, losses.cw)


def cw_gairat(case: Case) -> dict[str, Any]:
    return _summed(case, losses.cw_clamped_above)


def cw_rade(case: Case) -> dict[str, Any]:
    return _summed(case, partial(losses.cw_clamped_above, confidence=0.0))


def _autoattack_part(name: str) -> Any:
    settings: Any = parse(name)
    return autoattack.component_attack(torch.nn.Identity(), name, settings, torch.device("cpu"))


def dlr(case: Case) -> dict[str, Any]:
    return _value_and_gradient(case, _autoattack_part("apgd-ce").dlr_loss)


def dlr_targeted(case: Case) -> dict[str, Any]:
    attack = _autoattack_part("apgd-t")
    attack.y_target = (case.labels + case.hyper.get("target_offset", 3)) % case.classes
    return _value_and_gradient(case, attack.dlr_loss_targeted)
