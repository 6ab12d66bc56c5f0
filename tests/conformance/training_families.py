"""Families on training apart from the loss: iterations, weight perturbation, weight averages, schedules."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.conformance.attack_families import Standardized
from tests.conformance.method_families import gradients, state
from tests.conformance.oracle import Case
from tests.conformance.stand_ins import Supplied, linf_attack, written_start
from trainers import composition
from trainers.config import Schedule
from trainers.loop import schedules
from trainers.loop.step import training_step
from trainers.measures import closed_forms
from trainers.method import Batch, Method
from trainers.wrappers.training.weight_averaging import Average, DdpmAverage, SeatAverage
from trainers.wrappers.training.weight_perturbation import WeightPerturbation


def _batch(case: Case) -> Batch:
    return Batch(case.x, case.labels, torch.arange(len(case.labels)), {})


def _optimizer(case: Case, network: nn.Module) -> torch.optim.SGD:
    """Return SGD with the case's settings, or those that the oracle's text states for the whole family."""
    return torch.optim.SGD(
        network.parameters(),
        lr=case.hyper.get("lr", 0.1),
        momentum=case.hyper.get("momentum", 0.9),
        weight_decay=case.hyper.get("weight_decay", 5e-4),
    )


def at_iteration(case: Case) -> dict[str, Any]:
    network = case.network()
    model = Standardized(network)
    optimizer = _optimizer(case, network)
    attack = linf_attack(case, start=written_start(case), mode="train")
    pairs = []
    for _ in range(len(case.expected.get("losses_adv_clean", (0, 0)))):
        result = training_step(model, optimizer, composition.build("at"), _batch(case), attack)
        assert result.clean_logits is not None
        pairs.append([result.loss.item(), F.cross_entropy(result.clean_logits, case.labels).item()])
    return {"losses_adv_clean": pairs, "state_after": state(network)}


def _awp_step(case: Case, method: Method) -> dict[str, Any]:
    network = case.network()
    optimizer = _optimizer(case, network)
    awp = WeightPerturbation(case.number("gamma"))
    before = state(network)
    perturbed: dict[str, Tensor] = {}

    def remember(module: nn.Module, arguments: Any) -> None:
        if awp.directions and not perturbed:
            perturbed.update(state(module))

    network.register_forward_pre_hook(remember)
    loss = awp.perturbed_loss(method, network, _batch(case), Supplied(case.x_adv))
    directions = dict(awp.directions)
    loss.backward()
    found = gradients(network)
    optimizer.step()
    awp.after_update(network)
    return {
        "diff": directions,
        "state_before": before,
        "state_perturbed": perturbed,
        "loss": loss,
        "grads": found,
        "state_after": state(network),
    }


def awp_at_step(case: Case) -> dict[str, Any]:
    return _awp_step(case, composition.build("at"))


def awp_trades_step(case: Case) -> dict[str, Any]:
    return _awp_step(case, composition.build("trades", {"beta": case.number("beta"), "forwards": "awp"}))


def _averaged(case: Case, network: Any, average: Average, wanted: dict[str, Any], *, moves_all: bool) -> dict[str, Any]:
    """Return snapshots of the average while the network follows the path prescribed by the oracle's text."""
    snapshots = {}
    last = max(int(number) for number in wanted)
    with torch.no_grad():
        for number in range(1, last + 1):
            for position, parameter in enumerate(network.parameters()):
                index = torch.arange(parameter.numel(), dtype=parameter.dtype).view_as(parameter)
                parameter.add_(0.01 * torch.sin(index + number + position))
            network.bn.running_mean.add_(0.05 * number)
            if moves_all:
                network.bn.running_var.mul_(1.01)
                network.bn.num_batches_tracked.add_(1)
            average.after_step(network, number - 1)
            if str(number) in wanted:
                snapshots[str(number)] = state(average.model)
    return snapshots


def seat_ema(case: Case) -> dict[str, Any]:
    network = case.network()
    average = SeatAverage(network, case.number("alpha"))
    wanted = case.expected.get("shadow_after", {"1": None})
    return {"shadow_after": _averaged(case, network, average, wanted, moves_all=True)}


def ddpm_ema(case: Case) -> dict[str, Any]:
    network = case.network()
    average = DdpmAverage(network, case.number("tau"), case.number("warmup_steps"))
    snapshots = _averaged(case, network, average, case.expected.get("state_after", {"1": None}), moves_all=False)
    average.end_epoch(network)
    return {"state_after": snapshots, "after_update_bn": state(average.model)}


def lr_awp_piecewise(case: Case) -> dict[str, Any]:
    epochs, batches = case.whole("epochs"), case.hyper.get("n_batches", 391)
    schedule = Schedule(kind="piecewise", at=(epochs * 0.5, epochs * 0.75), factors=(0.1, 0.01))
    points = case.expected.get("points", [])
    rates = [
        schedules.learning_rate(
            schedule,
            case.number("lr_max"),
            epoch=epoch,
            iteration=iteration,
            batches=batches,
            step=epoch * batches + iteration,
            epochs=epochs,
        )
        for epoch, iteration in points
    ]
    return {"points": points, "lr": rates}


def _epoch_rates(schedule: Schedule, initial: float, epochs: int, at: list[int]) -> list[float]:
    """Return the learning rate in each of these 0-based epochs of one batch each."""
    return [
        schedules.learning_rate(schedule, initial, epoch=epoch, iteration=0, batches=1, step=epoch, epochs=epochs)
        for epoch in at
    ]


def lr_seat(case: Case) -> dict[str, Any]:
    epochs, initial = case.whole("epochs"), case.number("lr")
    numbered_from_one = case.expected.get("epochs", [])

    def rates(at: tuple[float, ...], factors: tuple[float, ...]) -> list[float]:
        schedule = Schedule(kind="interpolate", at=at, factors=factors)
        return _epoch_rates(schedule, initial, epochs, [epoch - 1 for epoch in numbered_from_one])

    thirds = (0, epochs // 3, epochs * 2 // 3, epochs)
    return {
        "epochs": numbered_from_one,
        "lr_wrn": rates(thirds, (1.0, 1.0, 0.1, 0.05)),
        "lr_resnet_shape": rates(thirds, (1.0, 1.0, 0.1, 0.01)),
        "lr_paper_text": rates((0, epochs // 3, epochs // 2, epochs), (1.0, 1.0, 0.1, 0.01)),
    }


def lr_ddpm_onecycle(case: Case) -> dict[str, Any]:
    total, at = case.whole("total_steps"), case.expected.get("epoch0based", [])
    schedule = Schedule(kind="onecycle", warmup_fraction=case.hyper.get("pct_start", 0.025))
    return {
        "epoch0based": at,
        "lr": _epoch_rates(schedule, case.number("max_lr"), total, at),
        "momentum": [schedules.momentum(schedule, 0.9, epoch=epoch, epochs=total) for epoch in at],
    }


def lambert_trajectories(case: Case) -> dict[str, Any]:
    rows = case.expected.get("rows", [])
    return {"rows": [closed_forms.trajectory_row(row["K"], row["w"], row["t"]) for row in rows]}
