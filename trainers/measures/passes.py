"""The cost of a training step, counted rather than timed: passes, operations and memory of activations.

A step of a method runs on a small stand-in network whose every operation is counted. Its cost on another network
follows, because it consists of the same forward and backward passes. Operations and activations of the real network are
counted on the meta device, where nothing is computed.
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

from trainers import composition, models
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.compat.torch_internals import TorchDispatchMode, floating_point_operations, storage_key
from trainers.config import TrialConfig
from trainers.data import dataset_facts
from trainers.loop.step import training_step
from trainers.method import Batch
from trainers.plugins import registry
from trainers.values import as_float

SIZE = 8  # images of the counted batch
LATE = 10**6  # an epoch after every warm-up


@dataclass(frozen=True)
class StepCount:
    """The cost of one step: operations, in forwards of its batch, and how many forwards' activations it holds."""

    forwards: float
    held: float


class StandIn(nn.Module):
    """A network deep enough that its first and last layers weigh no more than those of a real network."""

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
    """Return the cost of a step. Attacks of one and two steps are counted; every further step adds the same."""
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
    """Use one thread: in steps this small, several threads only wait for each other."""
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
            model.linear.weight.mul_(
                1e4
            )  # confident: MMA attacks images whose class has more than half of the probability
        method = composition.build(name, dict(hyperparameters))
        images = torch.rand(SIZE, 3, 8, 8)
        labels = (
            model(images).argmax(dim=1).detach()
        )  # all correct: methods that attack only correct images attack every image
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
    """Return the floating point operations of one image's forward: two per multiplication and addition."""
    facts = dataset_facts(dataset)
    with torch.device("meta"), torch.no_grad(), Operations() as counter:
        network = models.build(model, facts.classes, shape=facts.shape)
        network.eval()(torch.empty(1, *facts.shape))
    return counter.count


@cache
def activation_bytes(model: str, dataset: str) -> int:
    """Return the bytes that one image's training forward keeps for its backward, in float32."""
    facts = dataset_facts(dataset)
    with torch.device("meta"), Saved() as kept:
        network = models.build(model, facts.classes, shape=facts.shape)
        network.train()(torch.empty(2, *facts.shape))
    return kept.most // 2


def step_bytes(config: TrialConfig) -> dict[str, int]:
    """Return the parts of a device's memory, in bytes, that a training step needs at its peak."""
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
    """A counter of the operations of convolutions and matrix products, backward passes included.

    Torch's own counter hooks into modules, which does not work with the gradients of an attack.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        self.count += floating_point_operations(function, arguments, keywords or {}, result)
        return result


class Saved:
    """A counter of the most bytes that autograd keeps at one time for backwards; each storage counts once."""

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
        held = Held(tensor)
        if isinstance(tensor, nn.Parameter):
            return held
        key, size = storage_key(tensor), tensor.untyped_storage().nbytes()
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
