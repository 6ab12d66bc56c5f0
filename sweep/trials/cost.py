"""Cost of trainings and diagnoses, in passes of one image through the network and, once measured, in seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sweep.errors import UserError
from trainers import composition
from trainers.config import TrialConfig
from trainers.data import dataset_facts

PRUNED_SHARE = 0.7  # share of a search's epochs still trained despite pruning, measured on digits with two seeds


def training_cost(config: TrialConfig) -> float:
    """Return a rough number of image passes through the network, good enough to start the longest trial first."""
    recipe = config.recipe
    length = recipe.steps if recipe.steps is not None else recipe.epochs * batches(config)
    method = composition.method_of(config.method)
    passes = method.passes * (1 if method.trains_on == "clean" else 1 + recipe.attack.steps)
    step = passes + sum(one.passes for one in config.wrappers.values()) + 1.0
    return length * recipe.batch_size * step + selection_passes(config)


def batches(config: TrialConfig) -> int:
    images = (config.train_images or dataset_facts(config.dataset).train_images) - config.selection.validation
    return -(-images // config.recipe.batch_size)


def epochs(config: TrialConfig) -> int:
    steps = config.recipe.steps
    return config.recipe.epochs if steps is None else -(-steps // batches(config))


def selection_passes(config: TrialConfig) -> float:
    """Return the image passes needed to measure accuracy per epoch, counting only images that the protocol uses."""
    selection, length = config.selection, epochs(config)
    test = selection.images or config.test_images or dataset_facts(config.dataset).test_images
    images = selection.validation + (test if selection.protocol == "paper" else 0)
    return sum(selection.measures(epoch, length) for epoch in range(length)) * images * (selection.steps + 0.4)


def diagnosis_passes(config: TrialConfig, images: int | None) -> float:
    """Return the image passes of a diagnosis: PGD on the first images of each part, and a backward pass per class."""
    facts = dataset_facts(config.dataset)
    train = (config.train_images or facts.train_images) - config.selection.validation
    parts = (train, config.test_images or facts.test_images)
    return (21 + facts.classes) * sum(part if images is None else min(images, part) for part in parts)


def steps_of(config: TrialConfig) -> int:
    return config.recipe.steps or config.recipe.epochs * batches(config)


def training_seconds(config: TrialConfig, speed: Mapping[str, float]) -> float:
    return steps_of(config) * speed["step"] + selection_passes(config) * speed["pass"]


def budget_hours(text: str | None) -> float | None:
    """Parse a budget such as '500h', '30min', '2d' or a plain number of hours; return hours."""
    if text is None:
        return None
    for unit, hours in (("min", 1 / 60), ("h", 1.0), ("d", 24.0), ("", 1.0)):
        number = text.strip().removesuffix(unit) if unit else text.strip()
        if text.strip().endswith(unit):
            try:
                value = float(number) * hours
            except ValueError:
                continue
            if 0 < value < math.inf:
                return value
    raise UserError(f"--budget {text}: must be more than 0 device-hours, such as 500h, or 30min, or 2d")
