"""What a trial's configuration asks for, built: data, network, optimizer, attack."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainers import data, models
from trainers.config import TrialConfig
from trainers.data.bundle import DataBundle
from trainers.method import Method
from trainers.perturbation.projected_ascent import ProjectedAscent
from trainers.values import as_float
from trainers.wrapper import Wrapper


def prepare_data(
    config: TrialConfig, bundle: DataBundle | None, data_dir: Path | str | None, device: torch.device
) -> DataBundle:
    """The trial's images on its device: limited, split, with what the wrappers add."""
    bundle = bundle or data.load(config.dataset, data_dir)
    bundle = bundle.limited(config.train_images, config.test_images)
    bundle = bundle.held_out(config.selection.validation, config.selection.validation_from)
    for wrapper in config.wrappers.values():
        bundle = wrapper.prepare(bundle, Path(data_dir or "data"))
    return bundle.to(device)


def data_sha256(bundle: DataBundle, wrappers: Iterable[Wrapper], data_dir: Path | str | None) -> dict[str, str]:
    """Of the data set as it was loaded, and of the files that the wrappers add, by name.

    A bundle that brings its synthetic images along needs no file.
    """
    found = {bundle.name: bundle.sha256}
    for wrapper in wrappers if bundle.synthetic is None else ():
        found |= wrapper.data_sha256(Path(data_dir or "data"))
    return found


def build_model(config: TrialConfig) -> nn.Module:
    facts = data.dataset_facts(config.dataset)
    mean, std = (facts.mean, facts.std) if config.recipe.standardize else (None, None)
    return models.build(config.model, facts.classes, shape=facts.shape, mean=mean, std=std)


def build_optimizer(model: nn.Module, config: TrialConfig) -> torch.optim.SGD:
    recipe = config.recipe
    batchnorm = {id(p) for module in model.modules() if isinstance(module, _BatchNorm) for p in module.parameters()}
    spared = [] if recipe.decay_batchnorm else [p for p in model.parameters() if id(p) in batchnorm]
    decayed = [p for p in model.parameters() if recipe.decay_batchnorm or id(p) not in batchnorm]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}]
    if spared:
        groups.append({"params": spared, "weight_decay": 0.0})
    return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.nesterov)


def build_attack(config: TrialConfig, method: Method) -> ProjectedAscent:
    """Radius and steps are the study's; start and BatchNorm mode the method's own unless the study sets them."""
    asked = config.recipe.attack
    return ProjectedAscent(
        as_float(asked.epsilon),
        as_float(asked.step_size),
        asked.steps,
        start=method.start if asked.start == "method" else asked.start,
        mode=method.mode if asked.mode == "method" else asked.mode,
        norm=asked.norm,
    )
