"""The text of `python -m reports explain CELL`: departures of our cell from the paper's, with their effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reports.analysis.names import attack_name
from reports.analysis.results import Results
from reports.comparison.departures import differing, moves, shipped
from reports.comparison.diff import against_paper
from reports.comparison.explanation.commands import command
from reports.comparison.explanation.effects import (
    SELECTION,
    effect_of,
    same_trainings,
    selection_command,
    shown_checkpoint,
    training_effect,
    unknown,
    wanted_checkpoint,
)
from reports.comparison.explanation.settings import settings_of
from reports.comparison.explanation.subject import ExplainedCell, find
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
    """A setting that departs, in words, with its effect."""

    setting: str
    words: str
    effect: str


def text(results: Results, name: str) -> str:
    """Return the explanation of a cell as Markdown."""
    subject = find(results, name)
    cell, printed = subject.cell, subject.printed
    assert cell.sample is not None
    departures = explained(results, subject)
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
            f"{subject.study} is not a setting of the paper, so this compares with the nearest cell that the paper has."
        )
    if departures:
        rows = [[escape(departure.words), departure.effect] for departure in departures]
        parts.append(grid(rows, ["Departs", "With the paper's value instead of ours"], numbers=False))
    else:
        parts.append("No recorded setting departs from the paper's. Chance and unrecorded settings remain.")
    if results.paper.contradictions:
        count = len(results.paper.contradictions)
        parts.append(
            f"In {count} points the paper contradicts itself or the code that it used. Our decisions on them apply to "
            f"all cells alike; `{spelled('reports', 'diff', '--paper')}` lists them."
        )
    return "\n\n".join(parts) + "\n"


def explained(results: Results, subject: ExplainedCell) -> list[Explained]:
    """Return every departure, in the order of the configuration, then those of evaluation and seeds."""
    theirs = shipped(subject.printed.key.study, subject.printed.key.label)
    ours = results.configs(subject.study).get(subject.label)
    departures = []
    if theirs is not None and ours is not None:
        mine = settings_of(results, subject.study, subject.label)
        theirs, mine = _resolved(theirs, mine), _resolved(mine, theirs)
        for setting, words in differing(theirs, mine).items():
            if not moves(setting, subject.printed.key.measure):
                continue
            effect = training_effect(results, subject, setting, mine, theirs)
            departures.append(Explained(setting, words, effect))
        departures += _hyperparameters(results, subject, mine, theirs)
        departures += _computed(results, subject, mine["recipe"].get("precision"), theirs["recipe"].get("precision"))
    departures += _evaluation(results, subject, {departure.setting for departure in departures})
    departures += _seeds(subject)
    return departures


def _resolved(config: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with `method` replaced by the method's own start and mode where `other` names them.

    `start: method` and `start: gauss` are the same attack if the method itself starts with `gauss`.
    """
    attack, named = config["recipe"]["attack"], other["recipe"]["attack"]
    unresolved = [name for name in ("start", "mode") if attack[name] == "method" != named[name]]
    if not unresolved:
        return config
    from trainers import composition  # imports torch, which most cells do not need

    method = composition.method_of(config["method"])
    attack = {**attack, **{name: getattr(method, name) for name in unresolved}}
    return {**config, "recipe": {**config["recipe"], "attack": attack}}


def _hyperparameters(
    results: Results, subject: ExplainedCell, ours: dict[str, Any], theirs: dict[str, Any]
) -> Iterator[Explained]:
    """Yield hyperparameters that differ from the paper's."""
    wanted = {**theirs["hyperparameters"], **dict(subject.printed.key.hyperparameters)}
    searched = " (a search chose it)" if subject.label in results.searches(subject.study) else ""
    used = ours["hyperparameters"]
    for name, value in wanted.items():
        if name in used and canonical(used[name]) != canonical(value):
            setting = f"hyperparameters.{name}"
            target = {**theirs, "hyperparameters": {**theirs["hyperparameters"], name: value}}
            effect = training_effect(results, subject, setting, ours, target)
            yield Explained(setting, f"{name} {used[name]}{searched} instead of {value}", effect)


def _computed(results: Results, subject: ExplainedCell, ours: str | None, theirs: str | None) -> Iterator[Explained]:
    """Yield differences in device and precision where our records state them. The paper used GPUs."""
    seeds = results.seeds(subject.study, subject.label)
    trials = [planned.trial for planned in seeds if planned.seed in subject.cell.seeds]
    usable = (results.data.store.usable(TrialRecord, layout.trial_record(trial)) for trial in trials)
    records = [record for record in usable if record is not None]
    kinds = sorted({record.device_kind for record in records} - {"", "cuda"})
    wanted = theirs or "tf32"
    used = sorted({record.precision for record in records} - {"", wanted}) if ours == theirs else []
    words = [f"trained on {', '.join(kinds)} instead of a GPU"] if kinds else []
    words += [f"precision {', '.join(used)}, as recorded, instead of {wanted}"] if used else []
    if words:
        effect = f"unknown; the same run on a GPU with {wanted}, in a store of its own, would measure it"
        yield Explained("device", "; ".join(words), effect)


def _evaluation(results: Results, subject: ExplainedCell, departed: set[str]) -> Iterator[Explained]:
    """Yield differences in radius, checkpoint and test images.

    departed: settings of the training that depart already.
    """
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
    checkpoint, wanted = shown_checkpoint(results, cell), wanted_checkpoint(results, subject)
    if of_images and checkpoint != wanted and not departed & set(SELECTION):
        effect = same_trainings(results, subject) or unknown(selection_command(results, subject))
        yield Explained("checkpoint", f"checkpoint {checkpoint} instead of {wanted}", effect)
    dataset = results.data.manifests[study].dataset
    images = results.images([cell]) if of_images else []
    every = dataset_facts(dataset).test_images if dataset in dataset_names() else None
    if images and every is not None and min(images) != every and "test_images" not in departed:
        words = f"test images attacked {min(images):,} instead of {every:,}"
        yield Explained("evaluation.images", words, _images_effect(results, subject, every))


def _images_effect(results: Results, subject: ExplainedCell, every: int) -> str:
    """Return the effect of the number of test images, if another study attacked the same trainings on all of them."""
    trials = {planned.trial for planned in results.seeds(subject.study, subject.label)}
    for study, labels in results.labels.items():
        for label in labels:
            other = results.cell(replace(subject.cell.key, study=study, label=label))
            same = {planned.trial for planned in results.seeds(study, label)} <= trials
            if same and other.sample is not None and results.images([other]) == [every]:
                where = f"the same trainings on {every:,} images, {study}/{label}"
                return effect_of(other.sample, subject.cell.sample, where)
    return unknown(command(results, subject.cell, "evaluation.images", None))


def _seeds(subject: ExplainedCell) -> Iterator[Explained]:
    """Yield the difference in the number of seeds, with what it does to the standard error."""
    ours, theirs = subject.cell.sample, subject.printed.sample
    if ours is not None and ours.n != theirs.n:
        spread = ours.std if ours.spread_known else theirs.std
        words = f"n {ours.n} instead of {theirs.n}"
        if spread == spread:
            effect = (
                "does not change the expected value; the mean's standard error is "
                f"{spread / ours.n**0.5:.2f} instead of {spread / theirs.n**0.5:.2f}"
            )
        else:
            effect = "does not change the expected value; the size of chance effects needs a second seed"
        yield Explained("n", words, effect)
