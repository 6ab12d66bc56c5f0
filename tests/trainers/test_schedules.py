"""Learning rates against the official loops and torch's own scheduler."""

from __future__ import annotations

import pytest
import torch

from trainers.config import Schedule
from trainers.loop.schedules import learning_rate, momentum


def rate(schedule: Schedule, initial: float = 0.1, **at: int) -> float:
    return learning_rate(
        schedule, initial, **{"epoch": 0, "iteration": 0, "batches": 391, "step": 0, "epochs": 200, **at}
    )


@pytest.mark.parametrize(
    ("epoch", "iteration", "expected"),
    [
        (0, 0, 0.1),
        (99, 389, 0.1),
        (99, 390, 0.01),
        (100, 0, 0.01),
        (149, 389, 0.01),
        (149, 390, 0.001),
        (199, 390, 0.001),
    ],
)
def test_piecewise_rates_drop_in_the_last_iteration_of_the_epoch_before(
    epoch: int, iteration: int, expected: float
) -> None:
    assert rate(Schedule(), epoch=epoch, iteration=iteration) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("epoch", "expected"), [(0, 0.1), (98, 0.1), (99, 0.01), (148, 0.01), (149, 0.001)])
def test_rates_by_epoch_count_epochs_from_one(epoch: int, expected: float) -> None:
    schedule = Schedule(kind="piecewise_epoch")
    assert rate(schedule, epoch=epoch, iteration=390) == pytest.approx(expected, rel=1e-12)


def test_rates_by_step_change_once_that_many_steps_are_done() -> None:
    schedule = Schedule(kind="steps", at=(20000, 30000, 40000), factors=(0.3, 0.1, 0.03))
    seen = [rate(schedule, 0.3, step=step) for step in (0, 19999, 20000, 30000, 49999)]
    assert seen == pytest.approx([0.3, 0.3, 0.09, 0.03, 0.009], rel=1e-12)


@pytest.mark.parametrize(
    ("epoch", "expected"), [(1, 0.1), (40, 0.1), (41, 0.09775), (79, 0.01225), (80, 0.01), (100, 0.0075), (120, 0.005)]
)
def test_seats_rates_are_interpolated_between_its_knots(epoch: int, expected: float) -> None:
    schedule = Schedule(kind="interpolate", at=(0, 40, 80, 120), factors=(1, 1, 0.1, 0.05))
    assert rate(schedule, epoch=epoch - 1, epochs=120) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("epochs", [400, 57, 3])
def test_one_cycle_is_torchs_scheduler_stepped_once_an_epoch_momentum_included(epochs: int) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9, nesterov=True)
    official = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.4, pct_start=0.025, total_steps=epochs)
    schedule = Schedule(kind="onecycle", warmup_fraction=0.025)
    for epoch in range(epochs):
        group = optimizer.param_groups[0]
        assert rate(schedule, 0.4, epoch=epoch, iteration=7, epochs=epochs) == pytest.approx(group["lr"], rel=1e-9)
        assert momentum(schedule, 0.9, epoch=epoch, epochs=epochs) == pytest.approx(group["momentum"], rel=1e-9)
        if epoch + 1 < epochs:
            optimizer.step()
            official.step()


def test_constant_rates_and_momenta_stay() -> None:
    assert rate(Schedule(kind="constant"), epoch=199) == 0.1
    assert momentum(Schedule(), 0.9, epoch=120, epochs=200) == 0.9
