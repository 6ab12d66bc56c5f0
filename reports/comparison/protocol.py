"""Settings in which the rows of a study were trained differently, read from their configurations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.store.records.manifest import Manifest
from trainers.config import COMPUTED

# These make a row the method that it is. They are no differences in protocol.
OWN = ("method", "hyperparameters", "plugin", "seed")
NAMES = {
    "dataset": "data set",
    "model": "model",
    "recipe.epochs": "epochs",
    "recipe.steps": "optimizer steps instead of epochs",
    "recipe.batch_size": "batch size",
    "recipe.learning_rate": "initial learning rate",
    "recipe.momentum": "momentum",
    "recipe.weight_decay": "weight decay",
    "recipe.nesterov": "Nesterov momentum",
    "recipe.decay_batchnorm": "weight decay on BatchNorm",
    "recipe.schedule": "learning-rate schedule",
    "recipe.augmentation": "augmentation",
    "recipe.standardize": "inputs standardised",
    "recipe.log_clean_forward": "extra clean forward per step (moves BatchNorm statistics)",
    "recipe.precision": "precision",
    "recipe.compile": "network compiled",
    "recipe.deterministic": "a GPU repeats its numbers bit for bit",
    "recipe.channels_last": "memory format channels last",
    "recipe.attack.epsilon": "training radius ε",
    "recipe.attack.step_size": "training step size",
    "recipe.attack.steps": "training attack steps",
    "recipe.attack.start": "start of the training attack",
    "recipe.attack.mode": "BatchNorm mode during the training attack",
    "selection": "choice of the epoch",
    "awp": "weight perturbation (AWP)",
    "seat": "weight averaging (SEAT)",
    "ddpm": "synthetic images (DDPM)",
    "train_images": "training images used",
    "test_images": "test images used",
}
ABSENT = {
    "train_images": "all",
    "test_images": "all",
    "recipe.precision": "float32 with a GPU's convolutions in tf32",
}
# Shown as one value, because their parts mean little alone.
WHOLE = ("recipe.schedule", "recipe.augmentation", "selection", "awp", "seat", "ddpm")


@dataclass(frozen=True)
class SettingDifference:
    """A setting in which the rows differ: the most frequent value, and the rows with other values."""

    setting: str
    usual: str
    exceptions: tuple[tuple[str, tuple[str, ...]], ...]  # value, names of the rows


def differences(manifest: Manifest, names: Mapping[str, str]) -> list[SettingDifference]:
    """Return the settings in which the labels of a study differ.

    names: maps labels to display names.
    """
    settings: dict[str, dict[str, str]] = {}
    for label, config in manifest.config_by_label.items():
        inner = manifest.inner_attacks.get(label, {})
        for key, value in _flat(whole(config.model_dump(mode="json")), inner).items():
            settings.setdefault(key, {})[label] = value
    differing = []
    for key in sorted(settings, key=_order):
        values = settings[key]
        counts = Counter(values.values())
        if len(counts) < 2:
            continue
        usual = counts.most_common(1)[0][0]
        names_by_value: dict[str, list[str]] = {}
        for label, value in values.items():
            if value != usual:
                names_by_value.setdefault(value, []).append(names.get(label, label))
        exceptions = tuple((value, tuple(rows)) for value, rows in names_by_value.items())
        differing.append(SettingDifference(NAMES.get(key, key), usual, exceptions))
    return differing


def whole(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the settings that names and records leave out at their usual values."""
    return {**config, "recipe": {**COMPUTED, **config["recipe"]}}


def _order(key: str) -> tuple[int, str]:
    order = list(NAMES)
    return (order.index(key) if key in NAMES else len(order), key)


def _flat(config: Mapping[str, Any], inner: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the settings in words, by dotted name.

    inner: start and mode of the training attack of a method whose own code sets them.
    """
    flat: dict[str, str] = {}
    for name, value in config.items():
        key = prefix + name
        if key in OWN:
            continue
        if isinstance(value, dict) and key not in WHOLE:
            flat |= _flat(value, inner, key + ".")
        elif key in ("recipe.attack.start", "recipe.attack.mode") and value == "method":
            flat[key] = str(inner.get(name, "as the method's own code"))
        else:
            flat[key] = setting_text(key, value)
    return flat


def setting_text(key: str, value: Any) -> str:
    """Return the value of a setting in words."""
    if value is None:
        return ABSENT.get(key, "none")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "recipe.schedule" and isinstance(value, dict):
        return _schedule(value)
    if key == "recipe.augmentation" and isinstance(value, dict):
        return _augmentation(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {setting_text('', part)}" for name, part in value.items())
    return f"{value:g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _schedule(value: Mapping[str, Any]) -> str:
    kind, at, factors = value.get("kind"), value.get("at") or [], value.get("factors") or []
    if kind in ("constant", "onecycle"):
        return str(kind)
    unit = "step" if kind == "steps" else "epoch"
    drops = ", ".join(f"×{factor:g} from {unit} {point:g}" for point, factor in zip(at, factors, strict=False))
    ways = {
        "piecewise": "0-based, per iteration",
        "piecewise_epoch": "1-based, per epoch",
        "interpolate": "interpolated",
    }
    return drops + (f" ({ways[kind]})" if kind in ways else "")


def _augmentation(value: Mapping[str, Any]) -> str:
    parts = []
    if value.get("crop", "none") != "none":
        parts.append(f"{value['crop']}-padded crop of {value.get('padding')}")
    if value.get("flip"):
        parts.append("flip")
    if value.get("rotation"):
        parts.append(f"rotation by {value['rotation']:g}°")
    return ", ".join(parts) or "none"
