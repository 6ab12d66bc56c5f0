"""What a training step asks of its network, counted and not timed: passes, operations, memory of activations.

A step of a method is run on a small stand-in network, whose every operation is counted; what it costs on another
network follows, since it is made of the same forwards and backwards. Operations and activations of the real network
are counted on the meta device, where nothing is computed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from trainers import composition, models, registry
from trainers.config import TrialConfig
from trainers.data import dataset_facts
from trainers.method import Batch
from trainers.perturbation.projected_ascent import ProjectedAscent
from trainers.step import training_step
from trainers.values import as_float

SIZE = 8  # images of the counted batch
LATE = 10**6  # an epoch after every warm-up


@dataclass(frozen=True)
class StepCount:
    """Of one training step: its operations in forwards of its batch, and how many forwards' activations it holds."""

    forwards: float
    held: float


class StandIn(nn.Module):
    """Deep enough that its first and last layers do not count for more than those of a real network."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, *[16] * 8)
        layers = [
            nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())
            for before, after in zip(widths, widths[1:], strict=False)
        ]
        self.layers, self.linear = nn.Sequential(*layers), nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.linear(self.layers(images).mean(dim=(2, 3)))


def step_count(config: TrialConfig) -> StepCount:
    """Two short attacks are counted; a step more adds the same each time."""
    steps = config.recipe.attack.steps
    few, more = (_counted(config, number) for number in (1, 2)) if steps else (_counted(config, 0),) * 2
    return StepCount(few.forwards + (more.forwards - few.forwards) * max(0, steps - 1), more.held)


def _counted(config: TrialConfig, steps: int) -> StepCount:
    hyperparameters = tuple(sorted(config.hyperparameters.items()))
    attack = config.recipe.attack
    return _counted_step(
        config.method, hyperparameters, attack.start, attack.mode, config.recipe.log_clean_forward, steps
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """For steps so small that several threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@cache
def _counted_step(
    name: str, hyperparameters: tuple[tuple[str, object], ...], start: str, mode: str, logs: bool, steps: int
) -> StepCount:
    with torch.random.fork_rng(devices=[]), _one_thread():
        torch.manual_seed(0)
        model = StandIn()
        with torch.no_grad():
            model.linear.weight.mul_(1e4)  # sure of itself: MMA attacks what has more than half of the mass
        method = composition.build(name, dict(hyperparameters))
        images = torch.rand(SIZE, 3, 8, 8)
        labels = model(images).argmax(dim=1).detach()  # all correct: what attacks only those attacks every image
        batch = Batch(images, labels, torch.arange(SIZE), method.new_state(SIZE))
        attack = ProjectedAscent(
            as_float("8/255"),
            as_float("2/255"),
            steps,
            start=method.start if start == "method" else start,
            mode=method.mode if mode == "method" else mode,
        )
        wrappers = [registry.WRAPPERS.get(one)() for one in composition.parse(name)[1]]
        hooks = [one.begin(model, 2) for one in wrappers if not one.needs_files]
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        with Operations() as forward, Saved() as once:
            model(images)
        with Operations() as step, Saved() as held:
            training_step(
                model, optimizer, method.at_epoch(LATE), batch, attack, wrappers=hooks, log_clean_forward=logs
            )
    return StepCount(step.count / forward.count, held.most / once.most)


@cache
def forward_operations(model: str, dataset: str) -> int:
    """Floating point operations of one image's forward: two for each multiplication and addition."""
    facts = dataset_facts(dataset)
    with torch.device("meta"), torch.no_grad(), Operations() as counter:
        network = models.build(model, facts.classes, shape=facts.shape)
        network.eval()(torch.empty(1, *facts.shape))
    return counter.count


@cache
def activation_bytes(model: str, dataset: str) -> int:
    """What one image's forward in training keeps for its backward, in float32."""
    facts = dataset_facts(dataset)
    with torch.device("meta"), Saved() as kept:
        network = models.build(model, facts.classes, shape=facts.shape)
        network.train()(torch.empty(2, *facts.shape))
    return kept.most // 2


def step_bytes(config: TrialConfig) -> dict[str, int]:
    """The parts of the memory of a device that a training step needs at its peak."""
    facts, batch = dataset_facts(config.dataset), config.recipe.batch_size
    numbers = models.numbers(config.model, facts.classes, facts.shape)
    copies = 3 + sum(one.state_copies for one in config.wrappers.values())  # weights, gradients, momentum
    pixels = 1
    for side in facts.shape:
        pixels *= side
    size = 2 if config.recipe.precision == "bf16" else 4
    images = (config.train_images or facts.train_images) + (config.test_images or facts.test_images)
    return {
        "activations": int(step_count(config).held * batch * activation_bytes(config.model, config.dataset) * size / 4),
        "weights": 4 * numbers * copies,
        "images": images * pixels + 6 * batch * pixels * 4,  # the data set as bytes; a batch, its attack and gradients
        "context": 1 << 30,  # CUDA's own, and the workspaces of convolutions
    }


class Operations(TorchDispatchMode):
    """Counts those of convolutions and matrix products, backwards included. Torch's own counter hooks into modules,
    which an attack's gradients do not survive."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        found = function(*arguments, **(keywords or {}))
        counted = flop_registry.get(function.overloadpacket)
        if counted is not None:
            self.count += int(counted(*arguments, **(keywords or {}), out_val=found))
        return found


class Saved:
    """The most bytes that autograd keeps at one time for backwards, each storage counted once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._users: dict[int, int] = {}
        self._hooks = saved_tensors_hooks(self._pack, lambda held: held.tensor)

    def __enter__(self) -> Saved:
        self._hooks.__enter__()
        return self

    def __exit__(self, *fault: object) -> None:
        self._hooks.__exit__(*fault)

    def _pack(self, tensor: Tensor) -> Held:
        storage, held = tensor.untyped_storage(), Held(tensor)
        if isinstance(tensor, nn.Parameter):
            return held
        key, size = storage._cdata, storage.nbytes()
        if not self._users.get(key):
            self.now += size
            self.most = max(self.most, self.now)
        self._users[key] = self._users.get(key, 0) + 1
        weakref.finalize(held, self._drop, key, size)
        return held

    def _drop(self, key: int, size: int) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            self.now -= size


class Held:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
