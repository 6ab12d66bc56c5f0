"""Checks of a whole study: first its shape, then every label as the trial it would become."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sweep.studies import file as study_file
from sweep.studies.check_evaluation import evaluation_faults
from sweep.studies.check_parts import as_list, as_mapping, as_whole, missing_radii, norm_of, part_faults
from sweep.studies.check_search import search_faults
from sweep.studies.file import Fault, faults_of, merged
from trainers import composition
from trainers.config import Recipe, Selection
from trainers.data import dataset_facts, dataset_names
from trainers.models import misfit_of, model_names
from trainers.plugins import declarations, registry
from trainers.plugins.spelling import nearest

SECTIONS = ("train", "selection", "search", "evaluation", "resources")
LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]*")
Study = TypeVar("Study", bound=BaseModel)


def checked(
    shape: type[Study], content: dict[str, Any], where: str, known_faults: Sequence[Fault] = ()
) -> tuple[Study, dict[str, dict[str, Any]]]:
    """Return the validated study and its hyperparameters by label; raise one UserError that lists all faults."""
    content = {key: value for key, value in content.items() if value is not None or key not in SECTIONS}
    faults = {fault.path: fault for fault in known_faults}
    study = None
    try:
        study = shape.model_validate(content)
    except ValidationError as error:
        faults.update((fault.path, fault) for fault in faults_of(error, shape))
    resolved: dict[str, dict[str, Any]] = {}
    for fault in _contents(content, resolved):
        # Report each fault once: the shape's own message is clearer, and a fault of the study's recipe is not
        # repeated for every method.
        if not any(path in faults for path in _above(fault.path)):
            faults[fault.path] = fault
    if faults or study is None:
        raise study_file.refuse(where, list(faults.values()))
    return study, resolved


def _above(path: str) -> Iterator[str]:
    """Yield the path itself, then every path that encloses it."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _contents(content: dict[str, Any], resolved: dict[str, dict[str, Any]]) -> Iterator[Fault]:
    """Yield the faults that the models cannot detect, key by key, so that no fault hides another.

    Fills `resolved` with the hyperparameters of every label, defaults included; with thousands of labels it pays to
    build them once.
    """
    yield from _known(content, "dataset", dataset_names())
    yield from _known(content, "model", model_names())
    seeds = [as_whole(seed) for seed in as_list(content, "seeds")]
    if seeds:
        times = Counter(seed for seed in seeds if seed is not None)
        twice = sorted(seed for seed, number in times.items() if number > 1)
        if twice:
            yield Fault(
                "seeds", f"{', '.join(map(str, twice))} given more than once; seeds are replicates", content["seeds"]
            )
    yield from evaluation_faults(content)
    train, selection = as_mapping(content, "train"), as_mapping(content, "selection")
    yield from part_faults(Recipe, "train", train)
    yield from part_faults(Selection, "selection", selection, norm=norm_of(selection, as_mapping(train, "attack")))
    yield from _images(content)
    methods = as_mapping(content, "methods")
    if content.get("methods") == {}:
        yield Fault("methods", "is empty; name at least one, such as at", shows_value=False)
    for label, entry in methods.items():
        yield from _label(str(label), entry, train, selection, resolved)
    for label, entry in as_mapping(content, "search").items():
        yield from search_faults(str(label), entry, methods, train, selection, seeds)


def _known(content: dict[str, Any], key: str, names: Sequence[str]) -> Iterator[Fault]:
    value = content.get(key)
    if isinstance(value, str) and value not in names:
        yield Fault(key, f"unknown {key}{nearest(value, names)} known: {', '.join(names)}", value)


def _images(content: dict[str, Any]) -> Iterator[Fault]:
    if content.get("dataset") not in dataset_names():
        return
    facts = dataset_facts(content["dataset"])
    misfit = misfit_of(content["model"], facts.classes, facts.shape) if content.get("model") in model_names() else None
    if misfit:
        yield Fault("model", f"{misfit} for {content['dataset']}", content["model"])
    evaluation, selection = as_mapping(content, "evaluation"), as_mapping(content, "selection")
    limits = (
        ("train_images", content.get("train_images"), facts.train_images),
        ("test_images", content.get("test_images"), facts.test_images),
        ("evaluation.images", evaluation.get("images"), content.get("test_images") or facts.test_images),
    )
    for path, value, most in limits:
        asked, known = as_whole(value), as_whole(most)
        if asked is not None and known is not None and asked > known:
            yield Fault(path, f"there are {known} in {content['dataset']} as the study uses it", value)
    most = as_whole(content.get("train_images")) or facts.train_images
    yield from _held_out(selection, most, "selection")
    for section in ("methods", "search"):
        for label, entry in as_mapping(content, section).items():
            if isinstance(entry, dict) and not entry.get("pin"):
                yield from _held_out(as_mapping(entry, "selection"), most, f"{section}.{label}.selection")


def _held_out(selection: dict[str, Any], most: int, path: str) -> Iterator[Fault]:
    held_out = as_whole(selection.get("validation"))
    if held_out is not None and held_out >= most:
        way_out = (
            f"; lower it, or set {path.removesuffix('.selection')}.pin: true" if path.startswith("search.") else ""
        )
        yield Fault(f"{path}.validation", f"leaves nothing of the {most} training images{way_out}", held_out)


def _label(
    label: str,
    entry: Any,
    train: dict[str, Any],
    selection: dict[str, Any],
    resolved: dict[str, dict[str, Any]],
) -> Iterator[Fault]:
    path = f"methods.{label}"
    if not LABEL.fullmatch(label):
        yield Fault(path, "a label is made of letters, digits, _, - and +", shows_value=False)
        return
    entry = {} if entry is None else entry
    if not isinstance(entry, dict):
        return
    name = entry.get("method") or label
    try:
        _, wrappers = composition.parse(str(name))
    except ValueError as fault:
        yield Fault(path, str(fault), shows_value=False)
        return
    for wrapper in registry.WRAPPERS.names():
        if entry.get(wrapper) is not None and wrapper not in wrappers:
            yield Fault(f"{path}.{wrapper}", f"the method is {name!r}; write {name}+{wrapper}", shows_value=False)
    hyperparameters = entry.get("hyperparameters") or {}
    if isinstance(hyperparameters, dict):
        try:
            resolved[label] = composition.resolved_hyperparameters(str(name), hyperparameters)
        except (ValueError, TypeError) as fault:
            yield Fault(f"{path}.hyperparameters", str(fault), shows_value=False)
    own_train, own_selection = as_mapping(entry, "train"), as_mapping(entry, "selection")
    trained, selected = merged(train, own_train), merged(selection, own_selection)
    yield from part_faults(Recipe, f"{path}.train", own_train, train)
    norm = norm_of(selected, trained.get("attack"))
    yield from part_faults(Selection, f"{path}.selection", own_selection, selection, norm)
    if norm != norm_of(selection, train.get("attack")):
        yield from missing_radii(selected, f"{path}.selection", norm)
    mixes = as_mapping(trained, "augmentation").get("cutmix") is not None
    if mixes and not composition.method_of(str(name)).mixed_labels:
        able = [one for one in registry.METHODS.names() if declarations.method(one).mixed_labels]
        rule = f"the loss of {name} takes no mixed labels, which cutmix makes; those of {', '.join(able)} do"
        yield Fault(f"{path}.train.augmentation.cutmix", rule, shows_value=False)
