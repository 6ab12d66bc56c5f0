"""Build what a trial's configuration asks for: data, network, optimizer and attack."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from trainers import data, models
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.compat.torch_internals import batchnorms
from trainers.config import TrialConfig
from trainers.data.bundle import DataBundle
from trainers.method import Method
from trainers.values import as_float
from trainers.wrapper import Wrapper


def prepare_data(
    config: TrialConfig, bundle: DataBundle | None, data_dir: Path | str | None, device: torch.device
) -> DataBundle:
    """Return the trial's images on its device: limited, split and extended by the wrappers.

    `bundle` is the data set if it is already loaded; otherwise it is read from `data_dir`.
    """
    bundle = bundle or data.load(config.dataset, data_dir)
    bundle = bundle.limited(config.train_images, config.test_images)
    bundle = bundle.held_out(config.selection.validation, config.selection.validation_from)
    for wrapper in config.wrappers.values():
        bundle = wrapper.prepare(bundle, Path(data_dir or "data"))
    return bundle.to(device)


def data_sha256(bundle: DataBundle, wrappers: Iterable[Wrapper], data_dir: Path | str | None) -> dict[str, str]:
    """Return the SHA-256 of the data set as loaded and of every file that the wrappers add, by name.

    A bundle that already holds synthetic images needs no such file.
    """
    hashes = {bundle.name: bundle.sha256}
    for wrapper in wrappers if bundle.synthetic is None else ():
        hashes |= wrapper.data_sha256(Path(data_dir or "data"))
    return hashes


def build_model(config: TrialConfig) -> nn.Module:
    """Return a freshly initialised network, standardising its input if the recipe says so."""
    facts = data.dataset_facts(config.dataset)
    mean, std = (facts.mean, facts.std) if config.recipe.standardize else (None, None)
    return models.build(config.model, facts.classes, shape=facts.shape, mean=mean, std=std)


def build_optimizer(model: nn.Module, config: TrialConfig) -> torch.optim.SGD:
    """Return SGD, without weight decay on BatchNorm's parameters if the recipe exempts them."""
    recipe = config.recipe
    batchnorm = {id(p) for module in batchnorms(model) for p in module.parameters()}
    exempt = [] if recipe.decay_batchnorm else [p for p in model.parameters() if id(p) in batchnorm]
    decayed = [p for p in model.parameters() if recipe.decay_batchnorm or id(p) not in batchnorm]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}]
    if exempt:
        groups.append({"params": exempt, "weight_decay": 0.0})
    return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.nesterov)


def build_attack(config: TrialConfig, method: Method) -> ProjectedAscent:
    """Return the attack inside training.

    Radius and steps come from the study. Start and BatchNorm mode come from the method unless the study sets them.
    """
    settings = config.recipe.attack
    return ProjectedAscent(
        as_float(settings.epsilon),
        as_float(settings.step_size),
        settings.steps,
        start=method.start if settings.start == "method" else settings.start,
        mode=method.mode if settings.mode == "method" else settings.mode,
        norm=settings.norm,
    )
