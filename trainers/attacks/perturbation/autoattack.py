"""AutoAttack (Croce & Hein 2020) through `pyautoattack`: seeded, in independent batches, with its warnings recorded.

The package runs each component on the survivors of the one before, packed into batches, and seeds its generator again
for every batch. A batch's verdicts therefore depend only on its images, their order, the seed and the model.
`run_component` runs one such batch. Packing the survivors of all images in order gives the package's verdicts,
whichever process runs which batch.

Verdicts do not depend on the number of shards or processes, on interruptions, or on the order of batches. They do
depend on the batch size, the seed, and the set and order of the images: an image's random start depends on its position
in its batch, and so on how many images before it survived. Rounding that differs between devices, library versions or
thread counts can also change a borderline image, as for any attack.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from pyautoattack import AutoAttack
from torch import Tensor, nn

from trainers.attacks.perturbation.apgd import stopping
from trainers.attacks.perturbation.fab import DirectFAB
from trainers.attacks.perturbation.projected_ascent import correct_predictions
from trainers.attacks.perturbation.square import RememberingSquare
from trainers.compat.autoattack_internals import LOGGER, check_dynamic, checks
from trainers.values import NORM_DISPLAYS, as_float

if TYPE_CHECKING:
    from trainers.attacks.autoattack import AutoAttack as Settings


@dataclass
class Warnings(logging.Handler):
    """A handler that collects the package's warnings, each once; see `joined_warnings`."""

    messages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(level=logging.WARNING)

    def __hash__(self) -> int:
        return id(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages = joined_warnings([*self.messages, record.getMessage()])


def joined_warnings(messages: list[str]) -> list[str]:
    """Return every warning once, in order. Several counts of zero gradients become the largest of them."""
    counts: dict[str, int | None] = {}
    for message in messages:
        text = re.sub(r"\s*See flags_doc\.md for details\.", "", message).strip()
        counted = re.search(r"there are (\d+) points with zero gradient", text)
        if counted:
            key = text.replace(counted[1], "{}", 1)
            counts[key] = max(counts.get(key) or 0, int(counted[1]))
        else:
            counts[text] = None
    return [text if count is None else text.replace("{}", str(count)) for text, count in counts.items()]


@contextmanager
def _own_randomness() -> Iterator[None]:
    """Restore the process's random generators afterwards; the package seeds them."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


@contextmanager
def _caught_warnings() -> Iterator[list[str]]:
    """Yield a list that holds the package's warnings once the block has ended."""
    logger, handler = logging.getLogger(LOGGER), Warnings()
    caught: list[str] = []
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield caught
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        caught.extend(handler.messages)


def check_model(model: nn.Module, images: Tensor, labels: Tensor, attack: Settings) -> list[str]:
    """Run the package's checks of the model on one batch and return their warnings."""
    logger = logging.getLogger(LOGGER)
    with _own_randomness(), _caught_warnings() as caught:
        if attack.samples is None:
            checks.check_randomized(model, images, labels, bs=len(images), logger=logger)
        classes = checks.check_range_output(model, images, logger=logger)
        check_dynamic(model, images, logger)
        targets = attack.targets or 0
        checks.check_n_classes(classes, list(attack.components), targets, targets, logger=logger)
    return caught


def clean_predictions(model: nn.Module, images: Tensor, labels: Tensor, attack: Settings) -> Tensor:
    """Return which clean images are classified correctly; a randomised model draws from the attack's seed."""
    if attack.samples is None:
        return correct_predictions(model, images, labels)
    with _own_randomness():
        torch.manual_seed(attack.seed)
        return correct_predictions(model, images, labels)


def run_component(
    model: nn.Module, images: Tensor, labels: Tensor, component: str, attack: Settings
) -> tuple[Tensor, list[str], Tensor]:
    """Run one component on one batch, with the model in eval mode.

    Return which images survive, the package's warnings, and the adversarial images.
    """
    with _own_randomness(), _caught_warnings() as caught, torch.no_grad():
        adversarial = component_attack(model, component, attack, images.device).perturb(images.clone(), labels.clone())
        survived = model(adversarial).argmax(dim=1) == labels
    return survived, caught, adversarial


def component_attack(model: nn.Module, component: str, attack: Settings, device: torch.device):
    """Return the object that runs a component, with the package's settings for the norm and the version."""
    version = "standard" if attack.samples is None else "rand"
    norm = NORM_DISPLAYS[attack.norm]
    suite = AutoAttack(model, eps=as_float(attack.epsilon), norm=norm, seed=attack.seed, device=device, version=version)
    if component in ("apgd-ce", "apgd-dlr"):
        suite.apgd.loss = component.removeprefix("apgd-")
        if attack.samples is not None:
            suite.apgd.eot_iter = attack.samples
        return stopping(suite.apgd)
    if component == "apgd-t":
        # The package uses fewer targets for L1.
        suite.apgd_targeted.n_target_classes = min(attack.targets or 9, suite.apgd_targeted.n_target_classes)
        return stopping(suite.apgd_targeted)
    if component == "fab-t":
        fab = suite.fab
        return DirectFAB(
            model,
            norm=fab.norm,
            n_restarts=fab.n_restarts,
            n_iter=fab.n_iter,
            eps=fab.eps,
            alpha_max=fab.alpha_max,
            eta=fab.eta,
            beta=fab.beta,
            seed=fab.seed,
            targeted=True,
            device=device,
            n_target_classes=attack.targets,
        )
    if component == "square":
        plain = suite.square
        return RememberingSquare(
            model,
            p_init=plain.p_init,
            n_queries=attack.queries,
            eps=plain.eps,
            norm=plain.norm,
            n_restarts=plain.n_restarts,
            seed=plain.seed,
            device=device,
            resc_schedule=plain.rescale_schedule,
        )
    raise ValueError(f"unknown AutoAttack component {component!r}")


def square_warning(accuracies: dict[str, float]) -> list[str]:
    """Return the package's warning if Square, a black-box attack, lowers the accuracy of the components before it."""
    with _caught_warnings() as caught:
        checks.check_square_sr(accuracies, logger=logging.getLogger(LOGGER))
    return caught
