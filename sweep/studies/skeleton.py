"""Text of a new study: a recipe that fits the data set, with a comment on every value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sweep import studies
from sweep.commands import option_words, spelled
from sweep.errors import UserError
from sweep.studies import file as study_file
from sweep.studies import own
from sweep.studies.reference import keys
from trainers import composition
from trainers.data import dataset_facts, dataset_names
from trainers.models import model_names, shape_fault
from trainers.plugins import declarations, registry
from trainers.plugins.spelling import nearest

WIDTH = 48  # column at which comments begin
PREFERRED = ("preact_resnet18", "small_cnn")  # in this order if they fit; reversed for images smaller than 32x32
# For grey images without a shipped study. At the radius of 0.3 common on MNIST, adversarial training of the small
# network stayed at chance (12,000 images, 5 epochs, learning rate 0.1, one seed).
GREY = {
    "train": {
        "epochs": 20,
        "batch_size": 128,
        "learning_rate": 0.05,
        "schedule": {"kind": "interpolate", "at": [0, 4, 20], "factors": [0.01, 1.0, 0.001]},
        "attack": {"epsilon": 0.2, "step_size": 0.05, "steps": 10},
    },
    "evaluation": {"epsilon": 0.2},
}
# For colour images without a shipped study: the settings that the shipped studies on 32x32 images share.
COLOUR = {
    "train": {
        "epochs": 100,
        "batch_size": 128,
        "learning_rate": 0.1,
        "schedule": {"kind": "piecewise", "at": [75, 90], "factors": [0.1, 0.01]},
        "augmentation": {"crop": "reflect", "padding": 4, "flip": True},
        "attack": {"epsilon": "8/255", "step_size": "2/255", "steps": 10},
    },
    "evaluation": {"epsilon": "8/255"},
}


def skeleton(
    file: Path,
    dataset: str,
    methods: Sequence[str],
    model: str | None,
    epochs: int | None,
    seeds: Sequence[int],
    plugins: Sequence[str] = (),
) -> str:
    written = {key: _path_from(file.parent, text) for key, text in _own(dataset, model).items()}
    known, model = own.register_named(model, dataset)
    dataset = known or dataset
    _load(plugins)
    _check(dataset, methods, model)
    facts = dataset_facts(dataset)
    preferred = PREFERRED if min(facts.shape[1:]) >= 32 else PREFERRED[::-1]
    fitting = [one for one in (*preferred, *model_names()) if shape_fault(one, facts.shape) is None]
    network = model or (fitting[0] if fitting else "small_cnn")
    base = _base(dataset, facts.shape[0])
    recipe = _of_length(base["train"], epochs)
    recipe["batch_size"] = max(1, min(recipe["batch_size"], facts.train_images // 10))
    attack, radius = recipe["attack"], base["evaluation"]["epsilon"]
    held_out = min(1000, facts.train_images // 10)
    meaning = {key.path: key.meaning for key in keys()}
    title = f"{registry.DATASETS.get(dataset).display}, {declarations.network(network).display}"
    lines = [
        f"# Run with: {spelled('sweep.run', *option_words(study=str(file), plugin=plugins))}",
        "# All keys: STUDY.md, or python -m sweep.explain",
        f"title: {_yaml(title)}",
        *_lines({"dataset": dataset, "model": network, **written, "seeds": list(seeds)}, "", 0, meaning),
        "",
        *_lines({"train": recipe}, "", 0, meaning),
        "",
        "# Weights are chosen on held-out images, never on test images.",
        *_lines(
            {
                "selection": {
                    "protocol": "heldout",
                    "validation": held_out,
                    "validation_from": "spread",
                    "epsilon": attack["epsilon"],
                    "step_size": attack["step_size"],
                    "steps": attack["steps"],
                    "from_epoch": recipe["epochs"] // 2,
                    "every": max(1, recipe["epochs"] // 50),
                }
            },
            "",
            0,
            meaning,
        ),
        "",
        "# The columns of the tables. Each may change parts of the recipe: {train: {learning_rate: 0.01}}.",
        "methods:",
        *(f"  {label}: {_entry(label)}" for label in methods),
        "",
        "# Tuning with seeds of its own, on held-out images: take the # away.",
        "# search:",
        f"#   {_searchable(methods)}: {{space: declared, candidates: 8, seeds: [1000]}}",
        "",
        *_lines({"evaluation": {**_asked(facts.classes), "epsilon": radius}}, "", 0, meaning),
    ]
    if facts.test_images > 2000:
        lines.append(f"  # images: 1000  # all {facts.test_images:,} if absent; AutoAttack takes long on a CPU")
    return "\n".join(lines) + "\n"


def _own(dataset: str, model: str | None) -> dict[str, str]:
    return own.own_names({"dataset": dataset, "model": model})


def _path_from(folder: Path, text: str) -> str:
    """Return a typed path as the study must write it: absolute if the study is in another folder."""
    return text if folder.absolute() == Path.cwd() else own.with_absolute_path(text, Path.cwd())


def _load(plugins: Sequence[str]) -> None:
    try:
        for plugin in plugins:
            registry.load_plugin(plugin)
    except (ValueError, OSError) as fault:
        raise UserError(f"--plugin: {fault}") from None


def _asked(classes: int) -> dict[str, Any]:
    """Return the default attacks: AutoAttack if there are enough classes for its targeted losses."""
    return {"suite": "main"} if classes >= 4 else {"attacks": ["clean", "apgd-ce", "pgd-50"]}


def _check(dataset: str, methods: Sequence[str], model: str | None) -> None:
    if dataset not in dataset_names():
        known = dataset_names()
        raise UserError(f"--dataset {dataset}: unknown{nearest(dataset, known)} known: {', '.join(known)}")
    if model is not None and model not in model_names():
        known = model_names()
        raise UserError(f"--model {model}: unknown{nearest(model, known)} known: {', '.join(known)}")
    if model is not None and (fault := shape_fault(model, dataset_facts(dataset).shape)):
        raise UserError(f"--model {model}: {fault} for {dataset}")
    if not methods:
        raise UserError(f"--methods is empty; known: {', '.join(composition.method_names())}")
    for method in methods:
        try:
            composition.parse(method)
        except ValueError as fault:
            raise UserError(f"--methods: {fault}") from None


def _base(dataset: str, channels: int) -> dict[str, Any]:
    """Return the recipe of a shipped study on these images, or a default for grey or colour images."""
    for name in (dataset, f"{dataset}_rn18"):
        if name in studies.shipped():
            return study_file.read(studies.FOLDER / f"{name}.yaml")
    return GREY if channels == 1 else COLOUR


def _of_length(recipe: Mapping[str, Any], epochs: int | None) -> dict[str, Any]:
    """Return the recipe for another number of epochs, with its schedule scaled in proportion."""
    if epochs is None or epochs == recipe["epochs"]:
        return dict(recipe)
    schedule = dict(recipe.get("schedule", {}))
    if schedule.get("kind") != "steps" and "at" in schedule:
        schedule["at"] = [round(point * epochs / recipe["epochs"], 2) for point in schedule["at"]]
    return {**recipe, "epochs": epochs, **({"schedule": schedule} if schedule else {})}


def _entry(label: str) -> str:
    _, wrappers = composition.parse(label)
    hyperparameters = composition.resolved_hyperparameters(label, {})
    entry: dict[str, Any] = {"hyperparameters": hyperparameters} if hyperparameters else {}
    for wrapper in wrappers:
        entry[wrapper] = registry.WRAPPERS.get(wrapper)().model_dump(mode="json", exclude_none=True)
    return _yaml(entry)


def _searchable(methods: Sequence[str]) -> str:
    found = [label for label in methods if composition.resolved_hyperparameters(label, {})]
    return (found or list(methods))[0]


def _lines(content: Mapping[str, Any], path: str, depth: int, meaning: Mapping[str, str]) -> list[str]:
    """Return one line per key with an aligned comment; schedules and augmentations stay on one line."""
    found = []
    for name, value in content.items():
        place, indent = f"{path}{name}", "  " * depth
        if isinstance(value, Mapping) and name not in ("schedule", "augmentation"):
            found += [f"{indent}{name}:", *_lines(value, f"{place}.", depth + 1, meaning)]
            continue
        text = f"{indent}{name}: {_yaml(value)}"
        found.append(f"{text:<{WIDTH}}  # {meaning[place]}" if place in meaning else text)
    return found


def _yaml(value: Any) -> str:
    return (
        yaml.safe_dump(value, default_flow_style=True, width=1000, allow_unicode=True, sort_keys=False)
        .removesuffix("...\n")
        .strip()
    )
