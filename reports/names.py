"""How attacks, data sets and models are written in tables, figures and the page."""

from __future__ import annotations

from typing import Any

from trainers.attacks import display_name

DATASETS = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "svhn": "SVHN", "mnist": "MNIST", "digits": "Digits"}
MODELS = {
    "preact_resnet18": "PreActResNet-18",
    "wrn_34_10": "WRN-34-10",
    "wrn_28_10_silu": "WRN-28-10 (SiLU)",
    "small_cnn": "small CNN",
}


def attack_name(name: str) -> str:
    return display_name(name)


def setting(manifest: dict[str, Any]) -> str:
    dataset, model = str(manifest["dataset"]), str(manifest["model"])
    return f"{DATASETS.get(dataset, dataset)}, {MODELS.get(model, model)}"
