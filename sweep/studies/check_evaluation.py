"""Checks of a study's `evaluation` section."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweep.studies.check_parts import as_list, as_mapping, missing_radii, norm_of, radius_faults
from sweep.studies.file import Fault
from trainers.attacks.corruption import FOLDERS
from trainers.attacks.scoring import suites
from trainers.config import Recipe, kept_epoch
from trainers.data import dataset_facts, dataset_names
from trainers.plugins.spelling import nearest


def evaluation_faults(content: dict[str, Any]) -> Iterator[Fault]:
    evaluation = as_mapping(content, "evaluation")
    suite = evaluation.get("suite", "main")
    if isinstance(suite, str) and suite not in suites.SUITES:
        rule = f"unknown suite{nearest(suite, suites.SUITES)} known: {', '.join(suites.SUITES)}"
        yield Fault("evaluation.suite", rule, suite)
    yield from _attacks(content, evaluation)
    norm = norm_of(evaluation, as_mapping(as_mapping(content, "train"), "attack"))
    yield from radius_faults(evaluation, "evaluation.epsilon", norm)
    yield from missing_radii(evaluation, "evaluation", norm, ("epsilon",))
    checkpoints, selection = as_list(evaluation, "checkpoints"), as_mapping(content, "selection")
    yield from _kept_epochs(content, evaluation)
    if "best_validation" in checkpoints and selection.get("validation", 0) == 0:
        rule = "best_validation needs held-out images; set selection.validation"
        yield Fault("evaluation.checkpoints", rule, checkpoints)
    if "best_test" in checkpoints and selection.get("protocol") == "heldout":
        rule = "best_test needs protocol: paper; heldout leaves the test images alone, so it keeps no such weights"
        yield Fault("evaluation.checkpoints", rule, checkpoints)


def _kept_epochs(content: dict[str, Any], evaluation: dict[str, Any]) -> Iterator[Fault]:
    epochs = as_mapping(content, "train").get("epochs", Recipe().epochs)
    for key in ("checkpoints", "diagnosed"):
        for name in as_list(evaluation, key):
            number = kept_epoch(name) if isinstance(name, str) else None
            if number is not None and isinstance(epochs, int) and number > epochs:
                rule = f"{name} is beyond the end: the training has {epochs} epochs; take an earlier one, or last"
                yield Fault(f"evaluation.{key}", rule, name)


def _attacks(content: dict[str, Any], evaluation: dict[str, Any]) -> Iterator[Fault]:
    names = as_list(evaluation, "attacks")
    if names and evaluation.get("suite") is not None:
        rule = f"give attacks or a suite, not both; the suite is {evaluation['suite']!r}, null takes it away"
        yield Fault("evaluation.attacks", rule, names)
        return
    known = content.get("dataset") in dataset_names()
    facts = dataset_facts(content["dataset"]) if known else None
    norm = norm_of(evaluation, as_mapping(as_mapping(content, "train"), "attack"))
    changes: dict[str, Any] = {"norm": norm}
    changes |= {"classes": facts.classes, "shape": facts.shape} if facts else {}
    suite = evaluation.get("suite", "main")
    if not names and isinstance(suite, str) and suite in suites.SUITES:
        try:
            suites.attacks(suites.names_of(suite), **changes)
        except ValueError as fault:
            yield Fault("evaluation.suite", f"{fault}; list them: attacks: [clean, pgd-50, apgd-ce]", suite)
    for number, name in enumerate(names):
        try:
            found = suites.attacks([str(name)], **changes)
            if known and found[0].kind == "corruption" and content["dataset"] not in FOLDERS:
                raise ValueError(f"corruptions are there for {' and '.join(FOLDERS)} alone; leave {name} out")
        except ValueError as fault:
            yield Fault(f"evaluation.attacks.{number}", str(fault), shows_value=False)
