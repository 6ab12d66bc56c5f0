"""The speed of a device in training and attacks: a few small steps are timed, the rest follows from counted passes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from sweep.trials.provenance import device, device_name
from trainers import assembly, composition, models
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.attacks.scoring.scorer import pgd_accuracy
from trainers.config import TrialConfig
from trainers.data import dataset_facts
from trainers.loop.precision import prepared
from trainers.loop.reproducible import reproducible
from trainers.loop.step import training_step
from trainers.measures.passes import step_count
from trainers.method import Batch
from trainers.plugins import registry

Speed = dict[str, float]
MOST_SECONDS = 30.0  # for all measurements together
LARGE = 10**6  # number of weights; a CPU takes minutes for a whole batch of a larger network
FEWEST = 2  # images in a measured batch
TIMES = 3  # measurements of each kind, if there is time
STEPS = 2  # of the attack that represents evaluations


def measure(texts: Sequence[str], cpus: float, sources: Mapping[str, str]) -> dict[str, Any]:
    """Return the seconds of a step and of a pass for each configuration, on the device of this process.

    Args:
        texts: Configurations as JSON.
        cpus: Number of threads.
        sources: Texts of plug-ins by name.
    """
    for name, source in sources.items():
        registry.load_source(name, source)
    configs = [TrialConfig.model_validate(json.loads(text)) for text in texts]
    networks = {_network(config): config for config in configs}
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, int(cpus)))
    try:
        timed = {key: _timed(config, MOST_SECONDS / len(networks)) for key, config in networks.items()}
    finally:
        torch.set_num_threads(threads)
    return {"speeds": [_speed(config, timed[_network(config)]) for config in configs], "device": device_name()}


def _network(config: TrialConfig) -> tuple[object, ...]:
    recipe = config.recipe
    size = recipe.batch_size if device() == "cuda" else 0  # the size matters where a whole batch is measured
    return config.model, config.dataset, recipe.precision, recipe.compile, recipe.channels_last, size


def _speed(config: TrialConfig, timed: Mapping[str, list[float]]) -> Speed:
    """Return the seconds of a step and a pass. `low` and `high` are factors of the fastest and slowest measurement."""
    forwards = step_count(config).forwards * config.recipe.batch_size
    typical = {name: sorted(found)[len(found) // 2] for name, found in timed.items()}
    spread = [value / typical[name] for name, found in timed.items() for value in found]
    return {
        "step": forwards * typical["forward"],
        "pass": typical["pass"],
        "low": min(spread),
        "high": max(spread),
    }


def _timed(config: TrialConfig, seconds: float) -> dict[str, list[float]]:
    """Return seconds per image: of a forward within training steps, and of a pass within evaluations."""
    place, facts = torch.device(device()), dataset_facts(config.dataset)
    # Use the plainest adversarial training, whose operations are known. One attack step contains every kind of pass.
    attack = config.recipe.attack.model_copy(update={"steps": 1, "start": "uniform", "mode": "train"})
    recipe = config.recipe.model_copy(update={"attack": attack})
    plain = config.model_copy(update={"method": "at", "hyperparameters": {}, "wrappers": {}, "recipe": recipe})
    forwards = step_count(plain).forwards
    quick = place.type == "cuda" or models.numbers(config.model, facts.classes, facts.shape) < LARGE
    size = recipe.batch_size if quick else FEWEST
    with reproducible(place, recipe), torch.random.fork_rng(devices=[]):
        model = prepared(assembly.build_model(plain), place, recipe)
        method, optimizer = composition.build("at"), assembly.build_optimizer(model, plain)
        labels = torch.arange(size) % facts.classes
        images = torch.rand(size, *facts.shape)
        batch = Batch(images.to(place), labels.to(place), torch.arange(size, device=place), {})

        def step() -> None:
            training_step(model, optimizer, method, batch, ProjectedAscent(0.03, 0.01, 1))

        def passes() -> None:
            pgd_accuracy(model, images, labels, epsilon=0.03, step_size=0.01, steps=STEPS, device=place)

        return {
            "forward": [one / forwards / size for one in _repeated(step, place, seconds / 2)],
            "pass": [one / (STEPS + 0.4) / size for one in _repeated(passes, place, seconds / 2)],
        }


def _repeated(work: Callable[[], None], place: torch.device, seconds: float) -> list[float]:
    """Return the seconds of repeated calls. The first, a warm-up, counts only if it used up the time."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) <= TIMES and (not found or time.perf_counter() + found[-1] < end):
        started = time.perf_counter()
        work()
        if place.type == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - started)
    return found[1:] or found
