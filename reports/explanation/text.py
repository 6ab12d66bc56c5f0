"""`python -m reports explain CELL`: each setting in which our cell departs from the paper's, and what it is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reports.departures import differing, moves, shipped
from reports.diff import against_paper
from reports.explanation.commands import command
from reports.explanation.effects import (
    SELECTION,
    effect_of,
    same_trainings,
    selection_command,
    shown_checkpoint,
    training_effect,
    unknown,
    wanted_checkpoint,
)
from reports.explanation.settings import settings_of
from reports.explanation.subject import Subject, find
from reports.names import attack_name
from reports.results import Results
from reports.tables.caption import added_notes
from reports.tables.markdown import escape, grid
from reports.tables.table import p_text, signed
from sweep.commands import spelled
from sweep.store import layout
from sweep.store.encoding import canonical
from sweep.store.records.trial import TrialRecord
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
    parts += added_notes([cell])
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
            f"all cells alike: `{spelled('reports', 'diff', '--paper')}` lists them."
        )
    return "\n\n".join(parts) + "\n"


def explained(results: Results, subject: Subject) -> list[Explained]:
    """Every setting that departs, in the order of the configuration, then evaluation and seeds."""
    theirs = shipped(subject.printed.key.study, subject.printed.key.label)
    ours = results.configs(subject.study).get(subject.label)
    found = []
    if theirs is not None and ours is not None:
        mine = settings_of(results, subject.study, subject.label)
        theirs, mine = _said_alike(theirs, mine), _said_alike(mine, theirs)
        for setting, words in differing(theirs, mine).items():
            if not moves(setting, subject.printed.key.measure):
                continue
            effect = training_effect(results, subject, setting, mine, theirs)
            found.append(Explained(setting, words, effect))
        found += _hyperparameters(results, subject, mine, theirs)
        found += _computed(results, subject, mine["recipe"].get("precision"), theirs["recipe"].get("precision"))
    found += _evaluation(results, subject, {one.setting for one in found})
    found += _seeds(subject)
    return found


def _said_alike(one: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """`start: method` and `start: gauss` are the same attack of a method that starts so: its words for both."""
    attack, said = one["recipe"]["attack"], other["recipe"]["attack"]
    unsaid = [name for name in ("start", "mode") if attack[name] == "method" != said[name]]
    if not unsaid:
        return one
    from trainers import composition  # with torch, which most cells do without

    method = composition.method_of(one["method"])
    attack = {**attack, **{name: getattr(method, name) for name in unsaid}}
    return {**one, "recipe": {**one["recipe"], "attack": attack}}


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


def _computed(results: Results, subject: Subject, ours: str | None, theirs: str | None) -> Iterator[Explained]:
    """What the devices of our trainings made of a precision, where their records say it; the paper's were GPUs."""
    trials = [one.trial for one in results.seeds(subject.study, subject.label) if one.seed in subject.cell.seeds]
    found = [results.data.store.usable(TrialRecord, layout.trial_record(trial)) for trial in trials]
    kinds = sorted({one.device_kind for one in found if one is not None} - {"", "cuda"})
    wanted = theirs or "tf32"
    used = sorted({one.precision for one in found if one is not None} - {"", wanted}) if ours == theirs else []
    words = [f"trained on {', '.join(kinds)} instead of a GPU"] if kinds else []
    words += [f"precision {', '.join(used)}, as recorded, instead of {wanted}"] if used else []
    if words:
        effect = f"unknown; the same run on a GPU with {wanted}, in a store of its own, would measure it"
        yield Explained("device", "; ".join(words), effect)


def _evaluation(results: Results, subject: Subject, known: set[str]) -> Iterator[Explained]:
    cell, printed = subject.cell, subject.printed
    study, label, measure = subject.study, subject.label, printed.key.measure
    ours, theirs = cell.key.epsilon or results.epsilon(study), printed.key.epsilon or results.paper.epsilon
    of_images = measure == "clean" or any(
        name == measure for name, _ in results.attacks(study, shown_checkpoint(results, cell))
    )
    if measure != "clean" and of_images and ours != theirs:
        other = results.cell(replace(cell.key, epsilon=theirs))
        run = command(results, subject.cell, "evaluation.epsilon", theirs)
        effect = effect_of(other.sample, cell.sample, f"{study}/{label} at both radii") or unknown(run)
        yield Explained("evaluation.epsilon", f"attack radius {ours} instead of {theirs}", effect)
    shown, wanted = shown_checkpoint(results, cell), wanted_checkpoint(results, subject)
    if of_images and shown != wanted and not known & set(SELECTION):
        effect = same_trainings(results, subject) or unknown(selection_command(results, subject))
        yield Explained("checkpoint", f"checkpoint {shown} instead of {wanted}", effect)
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
    return unknown(command(results, subject.cell, "evaluation.images", None))


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
