"""Measure the cost of a training step, against the official loop written plainly and against each method's floor.

    python -m benchmarks.training_step [--methods at sovr] [--rounds 3] [--batch-size 32]

PreActResNet-18, PGD-10, one core, processor time. The speed of a shared machine changes by a tenth from one second to
the next, so the steps of a round take turns pass by pass, and each round has new networks. Ratios are medians over
rounds. A floor is the forward and backward passes that a method cannot do without, on the network as we train it:

    train-mode (at, sovr, ewat)   10 x (train forward + input gradient), closing forward, forward + full backward,
                                  clean forward
    eval-mode (gairat, mail)      10 x (eval forward + input gradient), forward + full backward, clean forward
    two-sided (mart)              as eval-mode, with a second forward in the loss and its backward
    trades (trades, tsovr)        eval forward for the target, 10 x (eval forward + input gradient), two forwards +
                                  full backward, one more forward of the clean images

Everything besides the passes (projections, losses, weights, the update, SOVR's switch) takes a hundredth of a step,
which is less than the noise of two whole steps. It is measured separately: the same steps and floors on a linear
network, whose passes cost almost nothing, plus one update of the real network. The passes are counted.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks._turns import in_turns
from trainers import composition, models
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.config import Recipe
from trainers.loop.precision import prepared
from trainers.loop.step import training_step
from trainers.method import Batch

EPSILON, STEP_SIZE, STEPS = 8 / 255, 2 / 255, 10
FLOORS = {
    "at": "train-mode",
    "sovr": "train-mode",
    "ewat": "train-mode",
    "gairat": "eval-mode",
    "mail": "eval-mode",
    "mart": "two-sided",
    "trades": "trades",
    "tsovr": "trades",
}
LIMIT_OF_PLAIN, LIMIT_OF_FLOOR, LIMIT_OF_SWITCH = 0.68, 1.05, 1.01


def network() -> nn.Module:
    torch.manual_seed(0)
    mean, std = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)
    return models.build("preact_resnet18", 10, shape=(3, 32, 32), mean=mean, std=std).train()


def optimizer_of(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)


def plain_step(model: nn.Module, optimizer: torch.optim.SGD, images: Tensor, labels: Tensor, noise: Tensor) -> None:
    """Do the official adversarial training iteration, in which every attack step is a full backward()."""
    model.train()
    delta = torch.clamp(EPSILON * noise, -images, 1 - images).requires_grad_()
    for _ in range(STEPS):
        loss = F.cross_entropy(model(torch.clamp(images + delta, 0, 1)), labels)
        loss.backward()
        assert delta.grad is not None
        moved = torch.clamp(delta.detach() + STEP_SIZE * delta.grad.sign(), -EPSILON, EPSILON)
        delta.data = torch.clamp(moved, -images, 1 - images)
        delta.grad.zero_()
    F.cross_entropy(model(images + delta), labels, reduction="none").detach()
    adversarial = torch.clamp(images + delta.detach(), 0, 1)
    loss = F.cross_entropy(model(adversarial), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    F.cross_entropy(model(images), labels).detach()


def our_step(name: str, model: nn.Module, batch: Batch, attack: ProjectedAscent | None = None) -> Callable[[], object]:
    method, optimizer = composition.build(name), optimizer_of(model)
    attack = attack or ProjectedAscent(EPSILON, STEP_SIZE, STEPS, start=method.start, mode=method.mode)
    logs = FLOORS[name] != "trades"  # its script has no clean forward for logging
    return lambda: training_step(model, optimizer, method, batch, attack, log_clean_forward=logs)


def floor_step(kind: str, model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Do only the passes through the network that the method needs."""
    parameters = list(model.parameters())
    model.train(kind == "train-mode")
    for parameter in parameters:
        parameter.requires_grad_(False)
    if kind == "trades":
        with torch.no_grad():
            model(images)
    for _ in range(STEPS):
        attacked = images.detach().requires_grad_()
        torch.autograd.grad(F.cross_entropy(model(attacked), labels), attacked)
    for parameter in parameters:
        parameter.requires_grad_(True)
    model.train()
    for _ in range(2 if kind == "train-mode" else 1):
        with torch.no_grad():
            model(images)
    loss = F.cross_entropy(model(images), labels)
    if kind in ("two-sided", "trades"):
        loss = loss + F.cross_entropy(model(images), labels)
    loss.backward()
    model.zero_grad()


def same_numbers() -> float:
    """Return the largest relative difference, in float64, of weights and buffers between both loops after two steps."""
    torch.manual_seed(1)
    images, labels = torch.rand(4, 3, 32, 32, dtype=torch.float64), torch.arange(4)
    noise = torch.rand_like(images) * 2 - 1
    plain = network().double()
    ours = prepared(copy.deepcopy(plain), torch.device("cpu"), Recipe())
    attack = ProjectedAscent(EPSILON, STEP_SIZE, STEPS, draw=lambda _: noise)
    optimizer = optimizer_of(plain)
    step = our_step("at", ours, Batch(images, labels, labels, {}), attack)
    for _ in range(2):
        plain_step(plain, optimizer, images, labels, noise)
        step()
    pairs = zip(plain.state_dict().values(), ours.state_dict().values(), strict=True)
    return max(float((a.double() - b.double()).abs().max() / (a.double().abs().max() + 1e-12)) for a, b in pairs)


Case = tuple[nn.Module, Callable[[], object]]


def cases(names: list[str], images: Tensor, labels: Tensor) -> dict[str, Case]:
    """Return the plain loop, every floor and every method's step, each with its own network."""
    noise, batch = torch.rand_like(images) * 2 - 1, Batch(images, labels, torch.arange(len(labels)), {})
    plain = network()
    optimizer = optimizer_of(plain)
    cases_by_name: dict[str, Case] = {"plain": (plain, partial(plain_step, plain, optimizer, images, labels, noise))}
    for kind in dict.fromkeys(FLOORS[name] for name in names):
        model = prepared(network(), torch.device("cpu"), Recipe())
        cases_by_name[f"floor {kind}"] = (model, partial(floor_step, kind, model, images, labels))
    for name in names:
        model = prepared(network(), torch.device("cpu"), Recipe())
        cases_by_name[name] = (model, our_step(name, model, batch))
    return cases_by_name


def measure(names: list[str], rounds: int, batch_size: int) -> dict[str, list[float]]:
    """Return the processor seconds of every step and floor, by round.

    Each round has its own networks, because the position in memory changes a network's speed by some percent.
    """
    torch.manual_seed(1)
    images, labels = torch.rand(batch_size, 3, 32, 32), torch.randint(10, (batch_size,))
    times: dict[str, list[float]] = {}
    for number in range(rounds + 1):  # the first round warms up
        runs = cases(names, images, labels)
        taken = dict(zip(runs, in_turns(list(runs.values())), strict=True))
        timings = ", ".join(f"{case} {seconds:.2f}" for case, seconds in taken.items())
        print(f"  round {number} of {rounds}, seconds: {timings}", file=sys.stderr, flush=True)
        for case, seconds in taken.items():
            times.setdefault(case, []).extend([seconds] if number else [])
    return times


def ratios(times: dict[str, list[float]], case: str, to: str) -> list[float]:
    """Return the times of `case` divided by those of `to`, by round."""
    return [seconds / reference for seconds, reference in zip(times[case], times[to], strict=True)]


def beside_passes(names: list[str], batch_size: int, repeats: int = 200) -> dict[str, dict[str, float]]:
    """Return processor seconds and passes of steps and floors on a network that takes almost no time."""
    torch.manual_seed(1)
    batch = Batch(torch.rand(batch_size, 3, 32, 32), torch.randint(10, (batch_size,)), torch.arange(batch_size), {})
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
    passes = 0

    def count(*_: object) -> None:
        nonlocal passes
        passes += 1

    model.register_forward_hook(count)
    cases: dict[str, Callable[[], object]] = {name: our_step(name, model, batch) for name in names}
    for kind in dict.fromkeys(FLOORS[name] for name in names):
        cases[f"floor {kind}"] = partial(floor_step, kind, model, batch.images, batch.labels)
    seconds: dict[str, list[float]] = {case: [] for case in cases}
    counted = dict.fromkeys(cases, 0)
    for repeat in range(-10, repeats):
        for case, run in cases.items():
            passes, started = 0, time.process_time()
            run()
            counted[case] = passes
            if repeat >= 0:
                seconds[case].append(time.process_time() - started)
    return {case: {"seconds": statistics.median(seconds[case]), "passes": counted[case]} for case in cases}


def update_seconds(repeats: int = 10) -> float:
    """Return the processor seconds of one SGD update of the real network."""
    model = network()
    optimizer = optimizer_of(model)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-4)
    optimizer.step()  # creates the momentum buffers
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        optimizer.step()
        taken.append(time.process_time() - started)
    return statistics.median(taken)


def _peak_of(kind: str, batch_size: int, pipe: object) -> None:
    """Send the peak memory above that of the model and the images through the pipe; runs in a process of its own."""
    torch.set_num_threads(1)
    model = prepared(network(), torch.device("cpu"), Recipe())
    images, labels = torch.rand(batch_size, 3, 32, 32), torch.randint(10, (batch_size,))
    attack = ProjectedAscent(EPSILON, STEP_SIZE, 1, final_forward=False)

    def work() -> None:
        if kind == "attack":
            attack(model, images, lambda logits: F.cross_entropy(logits, labels))
        else:
            F.cross_entropy(model(images), labels).backward()

    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    work()
    pipe.send(_memory("VmHWM") - before)  # type: ignore[attr-defined]


def _memory(field: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def peak_memory(kind: str, batch_size: int) -> float:
    """Return the peak memory of an attack step or a training step, in MiB."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_peak_of, args=(kind, batch_size, sender))
    process.start()
    peak = receiver.recv()
    process.join()
    return peak


def results(names: list[str], rounds: int, batch_size: int) -> dict[str, Any]:
    """Return all measurements of the named methods, for JSON."""
    times = measure(names, rounds, batch_size)
    typical = {case: statistics.median(seconds) for case, seconds in times.items()}
    free, update = beside_passes(list(dict.fromkeys([*names, "sovr"])), batch_size), update_seconds()
    rows = []
    for name in names:
        floor = f"floor {FLOORS[name]}"
        beside = free[name]["seconds"] - free[floor]["seconds"] + update
        of_floor = ratios(times, name, floor)
        rows.append(
            {
                "method": name,
                "seconds": typical[name],
                "of_plain": statistics.median(ratios(times, name, "plain")) if name in ("at", "sovr") else None,
                "of_floor": statistics.median(of_floor),
                "of_floor_range": [min(of_floor), max(of_floor)],
                "passes": free[name]["passes"],
                "floor_passes": free[floor]["passes"],
                "beside_passes_of_floor": beside / typical[floor],
                "floor": FLOORS[name],
            }
        )
    switch = free["sovr"]["seconds"] - free["at"]["seconds"]
    return {
        "batch_size": batch_size,
        "rounds": rounds,
        "plain_seconds": typical["plain"],
        "rows": rows,
        "switch": {"seconds": switch, "of_at": 1 + switch / typical["at"]},
        "largest_relative_difference": same_numbers(),
        "peak_mebibytes": {kind: peak_memory(kind, batch_size) for kind in ("attack", "training")},
        "processor_seconds": times,
    }


def show(result: dict[str, Any]) -> None:
    """Print the measurements."""
    rounds, memory, switch = result["rounds"], result["peak_mebibytes"], result["switch"]
    print(f"plain official AT step: {result['plain_seconds']:.2f} s (batch {result['batch_size']}, one core)\n")
    print(
        f"{'method':8}{'seconds':>9}{'of plain':>10}{'of floor':>10}{'range':>14}{'passes':>8}{'floor':>7}{'beside':>9}"
    )
    for row in result["rows"]:
        of_plain = f"{row['of_plain']:.3f}" if row["of_plain"] is not None else "-"
        spread = "{:.3f}-{:.3f}".format(*row["of_floor_range"])
        passes = f"{row['passes']:>8}{row['floor_passes']:>7}{row['beside_passes_of_floor']:9.2%}  {row['floor']}"
        print(f"{row['method']:8}{row['seconds']:9.2f}{of_plain:>10}{row['of_floor']:10.3f}{spread:>14}{passes}")
    print(f"\nmedians and range of {rounds} rounds; beside: time besides the passes, as a share of the method's floor")
    print(f"limits: {LIMIT_OF_PLAIN} of plain (at, sovr), {LIMIT_OF_FLOOR} of floor, switch {LIMIT_OF_SWITCH} of AT")
    print(f"SOVR's switch alone: {1e3 * switch['seconds']:.2f} ms, so a step takes {switch['of_at']:.5f} of AT's")
    print(f"same numbers as the plain loop: largest relative difference {result['largest_relative_difference']:.1e}")
    print(f"peak memory: attack step {memory['attack']:.0f} MiB, training step {memory['training']:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(FLOORS), choices=list(FLOORS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = results(list(dict.fromkeys(["at", *arguments.methods])), arguments.rounds, arguments.batch_size)
    show(result)
    target = Path(__file__).parent / "results" / "training_step.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written: {target}")


if __name__ == "__main__":
    main()
