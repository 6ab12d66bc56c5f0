"""How attacks, data sets and models are written in tables, figures and the page."""

from __future__ import annotations

from typing import Any

ATTACKS = {
    "autoattack": "AutoAttack",
    "clean": "Clean",
    "fgsm": "FGSM",
    "spsa": "SPSA",
    "apgd-ce": "APGD-CE",
    "apgd-t": "APGD-T",
    "fab-t": "FAB-T",
    "square": "Square",
}
DATASETS = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "svhn": "SVHN", "mnist": "MNIST", "digits": "Digits"}
MODELS = {
    "preact_resnet18": "PreActResNet-18",
    "wrn_34_10": "WRN-34-10",
    "wrn_28_10_silu": "WRN-28-10 (SiLU)",
    "small_cnn": "small CNN",
}


def attack_name(name: str) -> str:
    if name in ATTACKS:
        return ATTACKS[name]
    head, _, rest = name.partition("-")
    return f"{head.upper()}-{rest}" if head in ("pgd", "cw") else name.replace("-", " ").capitalize()


def ranking_words(measure: str) -> tuple[str, str]:
    """What a method can be more of by this measure, and against what: robust, under AutoAttack."""
    return ("accurate", "on clean images") if measure == "clean" else ("robust", f"under {attack_name(measure)}")


def setting(manifest: dict[str, Any]) -> str:
    dataset, model = str(manifest["dataset"]), str(manifest["model"])
    return f"{DATASETS.get(dataset, dataset)}, {MODELS.get(model, model)}"
