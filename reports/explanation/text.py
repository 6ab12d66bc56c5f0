"""`python -m reports explain CELL`: each setting in which our cell departs from the paper's, and what it is worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from reports.departures import differing, shipped
from reports.diff import against_paper
from reports.explanation.commands import command
from reports.explanation.effects import (
    SELECTION,
    effect_of,
    selection_effect,
    shown_checkpoint,
    training_effect,
    unknown,
)
from reports.explanation.settings import settings_of
from reports.explanation.subject import Subject, find
from reports.names import attack_name
from reports.results import Results
from reports.tables.markdown import escape, grid
from reports.tables.table import p_text, signed
from sweep.store.encoding import canonical
from trainers.data import dataset_facts, dataset_names


@dataclass(frozen=True)
class Explained:
    setting: str
    words: str
    effect: str


def text(results: Results, name: str) -> str:
    """Markdown."""
    subject = find(results, name)
    cell, printed = subject.cell, subject.printed
    assert cell.sample is not None
    found = explained(results, subject)
    difference = against_paper(cell.sample, printed.sample)
    theirs = f"table {printed.table}, {printed.key.study}/{printed.key.label}"
    measure = attack_name(printed.key.measure)
    parts = [
        f"# {escape(f'{subject.study}/{subject.label}')}, {escape(measure)}",
        f"Ours {cell.text} (n = {cell.sample.n}); the paper {printed.text} (n = {printed.sample.n}; {theirs}); "
        f"difference {signed(difference.difference)}, p = {p_text(difference.welch)} (Welch).",
    ]
    if subject.nearest_only:
        parts.append(
            f"{subject.study} is no setting of the paper: what follows compares with the nearest cell that is."
        )
    if found:
        rows = [[escape(one.words), one.effect] for one in found]
        parts.append(grid(rows, ["Departs", "With the paper's value instead of ours"], numbers=False))
    else:
        parts.append("No recorded setting departs from the paper's: what is left is chance and what no record holds.")
    if results.paper.contradictions:
        count = len(results.paper.contradictions)
        parts.append(
            f"In {count} points the paper contradicts itself or the codes it used; what was decided there holds for "
            "all cells alike: `python -m reports diff --paper` lists them."
        )
    return "\n\n".join(parts) + "\n"


def explained(results: Results, subject: Subject) -> list[Explained]:
    """Every setting that departs, in the order of the configuration, then evaluation and seeds."""
    theirs = shipped(subject.printed.key.study, subject.printed.key.label)
    ours = results.configs(subject.study).get(subject.label)
    found = []
    if theirs is not None and ours is not None:
        mine = settings_of(results, subject.study, subject.label)
        for setting, words in differing(theirs, mine).items():
            effect = training_effect(results, subject, setting, mine, theirs)
            found.append(Explained(setting, words, effect))
        found += _hyperparameters(results, subject, mine, theirs)
    found += _evaluation(results, subject, {one.setting for one in found})
    found += _seeds(subject)
    return found


def _hyperparameters(
    results: Results, subject: Subject, ours: dict[str, Any], theirs: dict[str, Any]
) -> Iterator[Explained]:
    wanted = {**theirs["hyperparameters"], **dict(subject.printed.key.hyperparameters)}
    searched = " (a search chose it)" if subject.label in results.searches(subject.study) else ""
    used = ours["hyperparameters"]
    for name, value in wanted.items():
        if name in used and canonical(used[name]) != canonical(value):
            setting = f"hyperparameters.{name}"
            target = {**theirs, "hyperparameters": {**theirs["hyperparameters"], name: value}}
            effect = training_effect(results, subject, setting, ours, target)
            yield Explained(setting, f"{name} {used[name]}{searched} instead of {value}", effect)


def _evaluation(results: Results, subject: Subject, known: set[str]) -> Iterator[Explained]:
    cell, printed = subject.cell, subject.printed
    study, label, measure = subject.study, subject.label, printed.key.measure
    ours, theirs = cell.key.epsilon or results.epsilon(study), printed.key.epsilon or results.paper.epsilon
    of_images = measure == "clean" or any(
        name == measure for name, _ in results.attacks(study, shown_checkpoint(results, cell))
    )
    if measure != "clean" and of_images and ours != theirs:
        other = results.cell(replace(cell.key, epsilon=theirs))
        run = command(results, subject, "evaluation.epsilon", theirs)
        effect = effect_of(other.sample, cell.sample, f"{study}/{label} at both radii") or unknown(run)
        yield Explained("evaluation.epsilon", f"attack radius {ours} instead of {theirs}", effect)
    shown, wanted = shown_checkpoint(results, cell), printed.key.checkpoint or results.paper.checkpoint
    if of_images and shown != wanted and not known & set(SELECTION):
        yield Explained("checkpoint", f"checkpoint {shown} instead of {wanted}", selection_effect(results, subject))
    dataset = results.data.manifests[study].dataset
    images = results.images([cell]) if of_images else []
    every = dataset_facts(dataset).test_images if dataset in dataset_names() else None
    if images and every is not None and min(images) != every and "test_images" not in known:
        words = f"test images attacked {min(images):,} instead of {every:,}"
        yield Explained("evaluation.images", words, _images_effect(results, subject, every))


def _images_effect(results: Results, subject: Subject, every: int) -> str:
    """The same trainings on all images, where another study of the store has attacked them."""
    trials = {one.trial for one in results.seeds(subject.study, subject.label)}
    for study, labels in results.labels.items():
        for label in labels:
            other = results.cell(replace(subject.cell.key, study=study, label=label))
            same = {one.trial for one in results.seeds(study, label)} <= trials
            if same and other.sample is not None and results.images([other]) == [every]:
                where = f"the same trainings on {every:,} images, {study}/{label}"
                return effect_of(other.sample, subject.cell.sample, where)
    return unknown(command(results, subject, "evaluation.images", None))


def _seeds(subject: Subject) -> Iterator[Explained]:
    ours, theirs = subject.cell.sample, subject.printed.sample
    if ours is not None and ours.n != theirs.n:
        spread = ours.std if ours.spread_known else theirs.std
        words = f"n {ours.n} instead of {theirs.n}"
        if spread == spread:
            effect = (
                f"moves no expectation; the mean's standard error is {spread / ours.n**0.5:.2f} in place of "
                f"{spread / theirs.n**0.5:.2f}"
            )
        else:
            effect = "moves no expectation; how much chance is in it needs a second seed"
        yield Explained("n", words, effect)
