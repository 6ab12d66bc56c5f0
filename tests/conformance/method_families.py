"""Families on the losses of methods: value, gradients, weights, BatchNorm buffers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.conformance.oracle import Case
from tests.conformance.stand_ins import Supplied, Watched, linf_attack
from trainers import composition, losses
from trainers.method import Attack, Batch, Method


def gradients(network: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def state(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def recorded_state(case: Case, network: nn.Module) -> dict[str, Tensor] | None:
    """Return the network's state, or None if the file has null because the state was not recorded."""
    return None if case.expected.get("state_after") is None else state(network)


def step(case: Case, method: Method, attack: Attack) -> dict[str, Any]:
    network = case.network()
    loss = method.loss(network, case.x, case.labels, attack)
    loss.backward()
    return {"loss": loss, "grads": gradients(network), "state_after": recorded_state(case, network)}


def full_step(case: Case, method: Method, *, start: str, mode: str) -> dict[str, Any]:
    attack = Watched(linf_attack(case, start=start, mode=mode))
    return step(case, method, attack) | {"x_adv": attack.found}


def adversarial_logits(case: Case) -> Tensor:
    return case.network()(case.x_adv).detach()


def optional(case: Case, *names: str) -> dict[str, Any]:
    return {name: case.hyper[name] for name in names if name in case.hyper}


def at_ce(case: Case) -> dict[str, Any]:
    return step(case, composition.build("at"), Supplied(case.x_adv))


def ovr(case: Case) -> dict[str, Any]:
    logits = adversarial_logits(case)
    return step(case, composition.build("ovr"), Supplied(case.x_adv)) | {
        "per_sample": losses.ovr(logits, case.labels),
        "logit_margin_loss": losses.logit_margin(logits, case.labels),
    }


def sovr(case: Case) -> dict[str, Any]:
    settings = {"M": case.whole("M"), "lam": case.number("lam")} | optional(case, "label_smoothing")
    margins = losses.logit_margin(adversarial_logits(case), case.labels)
    hard = losses.hardest(margins, case.whole("M"))
    return step(case, composition.build("sovr", settings), Supplied(case.x_adv)) | {"in_L": hard}


def tsovr(case: Case) -> dict[str, Any]:
    settings: dict[str, Any] = {name: case.number(name) for name in ("M", "lam", "beta")}
    settings |= optional(case, "label_smoothing", "margin_on")
    clean = settings.get("margin_on", "clean") == "clean"
    logits = case.network()(case.x).detach() if clean else adversarial_logits(case)
    hard = losses.hardest(losses.logit_margin(logits, case.labels), case.whole("M"))
    return step(case, composition.build("tsovr", settings), Supplied(case.x_adv)) | {"in_L": hard}


def _trades(case: Case, forwards: str) -> Method:
    return composition.build(
        "trades", {"beta": case.number("beta"), "forwards": forwards} | optional(case, "label_smoothing")
    )


def trades_loss(case: Case) -> dict[str, Any]:
    return step(case, _trades(case, "original"), Supplied(case.x_adv))


def trades_full(case: Case) -> dict[str, Any]:
    return full_step(case, _trades(case, "original"), start="gauss", mode="eval")


def ddpm_trades_full(case: Case) -> dict[str, Any]:
    return full_step(case, _trades(case, "ddpm"), start="uniform", mode="train_untracked")


def mart_loss(case: Case) -> dict[str, Any]:
    return step(case, composition.build("mart", {"beta": case.number("beta")}), Supplied(case.x_adv))


def mart_full(case: Case) -> dict[str, Any]:
    return full_step(case, composition.build("mart", {"beta": case.number("beta")}), start="gauss", mode="eval")


def mail_at(case: Case) -> dict[str, Any]:
    method: Any = composition.build("mail", {"bias": case.number("bias"), "slope": case.number("slope")})
    margins = losses.probability_margin(adversarial_logits(case), case.labels)
    return step(case, method, Supplied(case.x_adv)) | {
        "neg_prob_margin": margins,
        "weights": method.weights(margins),
    }


def ewat(case: Case) -> dict[str, Any]:
    method: Any = composition.build("ewat", optional(case, "detach_weights"))
    return step(case, method, Supplied(case.x_adv)) | {"weights": method.weights(adversarial_logits(case))}


def _gairat(case: Case) -> Any:
    settings = {"Lambda": case.number("Lambda"), "weight_function": case.hyper.get("func", "Tanh")}
    return composition.build("gairat", settings)


def gair_weights(case: Case) -> dict[str, Any]:
    return {"weights": _gairat(case).weights(case.vector("kappa"), case.whole("num_steps"))}


def gairat_loss(case: Case) -> dict[str, Any]:
    kappa, steps = case.vector("kappa").long(), case.whole("num_steps")
    # Iterates that are classified correctly for the first κ steps and wrongly afterwards.
    right = F.one_hot(case.labels, case.classes).double()
    observed = [torch.where((number < kappa)[:, None], right, -right) for number in range(steps)]
    return step(case, _gairat(case), Supplied(case.x_adv, observed)) | gair_weights(case)


def ga_pgd(case: Case) -> dict[str, Any]:
    method: Any = composition.build("gairat")
    attack = linf_attack(case, start="none", mode="eval")
    adversarial, kappa = method.attacked(case.network(), case.x, case.labels, attack)
    return {"x_adv": adversarial, "kappa": kappa}


def mma_step(case: Case) -> dict[str, Any]:
    method = composition.build(
        "mma",
        {
            "d_max": case.number("d_max"),
            "min_radius": case.number("mineps"),
            "max_radius_factor": case.number("maxeps") / case.number("d_max"),
            "search_steps": case.whole("search_steps"),
            "step_scale": case.number("eps_iter_scale"),
            "clean_coefficient": case.number("clean_loss_coeff"),
        },
    )
    network: Any = case.network()
    with torch.no_grad():
        network.fc.weight.mul_(case.number("fc_scale"))
        network.fc.bias.mul_(case.number("fc_scale"))
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=case.number("lr"),
        momentum=case.number("momentum"),
        weight_decay=case.number("weight_decay"),
    )
    before = state(network)
    clean_logits = network(case.x).detach()
    network.load_state_dict(before)

    hyper = dict(case.hyper) | {"eps": 0.0, "step": 0.0, "steps": case.whole("nb_iter")}
    attack = Watched(linf_attack(replace_hyper(case, hyper), start="uniform", mode="eval"))
    batch = Batch(case.x, case.labels, torch.arange(len(case.labels)), {"radii": case.vector("prev_eps")})
    method.batch_loss(network, batch, attack).backward()
    combined = gradients(network)
    optimizer.step()
    return {
        "clean_loss": F.cross_entropy(clean_logits, case.labels),
        "slm_clean": losses.soft_logit_margin(clean_logits, case.labels),
        "curr_eps": batch.state["radii"],
        "data_after": attack.crafted[0],
        "combined_grads": combined,
        "state_after": state(network),
    }


def replace_hyper(case: Case, hyper: dict[str, Any]) -> Case:
    return Case(case.id, case.family, case.model_name, case.inputs, hyper, case.expected)
