"""AutoAttack (Croce & Hein 2020) through `pyautoattack`: seeded, in batches that stand alone, warnings kept.

The package runs each component on the survivors of the one before, packed into batches, and seeds its generator
anew for every batch. A batch's verdicts therefore depend on its images, their order, the seed and the model, and on
nothing that happened elsewhere. `run_component` is one such batch; whoever packs the survivors of all images in
order gets the package's verdicts, whichever process ran which batch.

Invariant: number of shards, number of processes, interruption and resume, order in which batches run.
Not invariant: the batch size, the seed, the set of images and their order (an image's random start depends on its
place in its batch, which depends on how many images before it survived). Rounding that differs between devices,
library versions or thread counts can also move a borderline image, as for any attack.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from pyautoattack import AutoAttack, checks
from torch import Tensor, nn

from trainers.perturbation.apgd import stopping
from trainers.perturbation.fab import DirectFAB
from trainers.perturbation.projected_ascent import correct_predictions
from trainers.perturbation.square import RememberingSquare
from trainers.values import NORM_DISPLAYS, as_float

if TYPE_CHECKING:
    from trainers.attacks.autoattack import AutoAttack as Settings

_LOGGER = "auto-attack"


@dataclass
class Warnings(logging.Handler):
    """What the package logs as warnings, each once; counts of points without gradient are joined to the largest."""

    messages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(level=logging.WARNING)

    def __hash__(self) -> int:
        return id(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages = joined_warnings([*self.messages, record.getMessage()])


def joined_warnings(messages: list[str]) -> list[str]:
    """Every warning once, in order; several counts of zero gradients become the largest of them."""
    kept: dict[str, int | None] = {}
    for message in messages:
        text = re.sub(r"\s*See flags_doc\.md for details\.", "", message).strip()
        counted = re.search(r"there are (\d+) points with zero gradient", text)
        if counted:
            key = text.replace(counted[1], "{}", 1)
            kept[key] = max(kept.get(key) or 0, int(counted[1]))
        else:
            kept[text] = None
    return [text if count is None else text.replace("{}", str(count)) for text, count in kept.items()]


@contextmanager
def _own_randomness() -> Iterator[None]:
    """The package seeds the process's generators; they are back where they were afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


@contextmanager
def _caught_warnings() -> Iterator[list[str]]:
    logger, handler = logging.getLogger(_LOGGER), Warnings()
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
    """The package's checks of the defence on one batch: random, dynamic, probabilities, too few classes."""
    logger = logging.getLogger(_LOGGER)
    tracer = sys.gettrace()
    with _own_randomness(), _caught_warnings() as caught:
        if attack.samples is None:
            checks.check_randomized(model, images, labels, bs=len(images), logger=logger)
        classes = checks.check_range_output(model, images, logger=logger)
        # The package counts gradient calls in a global that it never resets, and drops a debugger's trace function.
        checks.funcs.update(dict.fromkeys(checks.funcs, 0))
        with torch.no_grad():
            checks.check_dynamic(model, images, False, logger=logger)
        sys.settrace(tracer)
        targets = attack.targets or 0
        checks.check_n_classes(classes, list(attack.components), targets, targets, logger=logger)
    return caught


def clean_predictions(model: nn.Module, images: Tensor, labels: Tensor, attack: Settings) -> Tensor:
    """Whether each clean image is classified right; of a randomised model by draws that the seed decides."""
    if attack.samples is None:
        return correct_predictions(model, images, labels)
    with _own_randomness():
        torch.manual_seed(attack.seed)
        return correct_predictions(model, images, labels)


def run_component(
    model: nn.Module, images: Tensor, labels: Tensor, component: str, attack: Settings
) -> tuple[Tensor, list[str]]:
    """Whether each image of one batch withstands one component, and the warnings. The model is in eval mode."""
    with _own_randomness(), _caught_warnings() as caught, torch.no_grad():
        adversarial = component_attack(model, component, attack, images.device).perturb(images.clone(), labels.clone())
        survived = model(adversarial).argmax(dim=1) == labels
    return survived, caught


def component_attack(model: nn.Module, component: str, attack: Settings, device: torch.device):
    """The object that runs a component, with the package's settings for the norm and for the version."""
    version = "standard" if attack.samples is None else "rand"
    norm = NORM_DISPLAYS[attack.norm]
    suite = AutoAttack(model, eps=as_float(attack.epsilon), norm=norm, seed=attack.seed, device=device, version=version)
    if component in ("apgd-ce", "apgd-dlr"):
        suite.apgd.loss = component.removeprefix("apgd-")
        if attack.samples is not None:
            suite.apgd.eot_iter = attack.samples
        return stopping(suite.apgd)
    if component == "apgd-t":
        # The package has fewer targets for L1.
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
    """The package's warning when Square, a black-box attack, still lowers the accuracy of the ones before it."""
    with _caught_warnings() as caught:
        checks.check_square_sr(accuracies, logger=logging.getLogger(_LOGGER))
    return caught
