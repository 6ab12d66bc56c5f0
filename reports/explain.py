"""`python -m reports explain CELL`: each setting in which our cell departs from the paper's, and what it is worth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reports.departures import differing, shipped
from reports.diff import against_paper
from reports.known_effects import effect_text, twins
from reports.measuring import at, command, command_for_paper, settings_of
from reports.names import attack_name
from reports.papers.paper import Printed
from reports.results import Results
from reports.tables.markdown import escape, grid
from reports.tables.table import Key, TableCell, p_text, signed
from sweep.errors import UserError
from sweep.store.encoding import canonical
from trainers.data import dataset_facts, dataset_names

# Another data set or network is another study: no setting that could be changed alone.
ANOTHER_STUDY = ("dataset", "model")
SELECTION = ("selection.protocol", "checkpoint")


@dataclass(frozen=True)
class Explained:
    setting: str
    words: str
    effect: str


@dataclass(frozen=True)
class Subject:
    """Our cell and the printed one that it is held against."""

    cell: TableCell
    printed: Printed

    @property
    def study(self) -> str:
        return self.cell.key.study

    @property
    def label(self) -> str:
        return self.cell.label

    @property
    def nearest_only(self) -> bool:
        return self.study not in (self.printed.key.study, *self.printed.key.elsewhere)


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


def find(results: Results, name: str) -> Subject:
    """`study/label/measure`, or `tableN/study/label` with a measure where the table has several."""
    words = name.strip("/").split("/")
    match = re.fullmatch(r"table(\d+)", words[0])
    if len(words) not in ((3, 4) if match else (3,)):
        raise UserError(f"cell {name!r}: must look like digits/sovr/autoattack or table1/cifar10_rn18/sovr")
    every = [cell for table in results.paper.tables for cell in table.cells()]
    if match:
        wanted = [
            one
            for one in every
            if (one.table, one.key.study, one.key.label) == (int(match[1]), *words[1:3])
            and (len(words) < 4 or one.key.measure == words[3])
        ]
        if not wanted:
            known = sorted({f"{one.key.study}/{one.key.label}" for one in every if one.table == int(match[1])})
            raise UserError(
                f"cell {name!r}: the paper has no such cell; table {match[1]} has {', '.join(known) or 'none'}"
            )
        return Subject(_ours(results, wanted[0].key, name), wanted[0])
    study, label, measure = words
    method = results.methods.get((study, label), label)
    same = [one for one in every if one.key.measure == measure and one.key.label in (label, method)]
    own = [one for one in same if study in (one.key.study, *one.key.elsewhere)]
    if not same:
        of_label = sorted({one.key.measure for one in every if one.key.label in (label, method)})
        labels = sorted({one.key.label for one in every if one.key.measure == measure})
        raise UserError(
            f"cell {name!r}: the paper prints no {measure} of {label}; of {label} it prints "
            f"{', '.join(of_label) or 'nothing'}, and {measure} of {', '.join(labels) or 'no method'}"
        )
    return Subject(_ours(results, Key(study, label, measure), name), (own or same)[0])


def _ours(results: Results, key: Key, name: str) -> TableCell:
    cell = results.cell(key)
    if cell.sample is None:
        if key.study not in results.labels:
            known = ", ".join(results.labels) or "no study"
            raise UserError(f"cell {name!r}: the store has no study {key.study!r}; it has {known}")
        known = ", ".join(results.labels[key.study])
        raise UserError(f"cell {name!r}: no number of ours is there; {key.study} has the labels {known}")
    return cell


def explained(results: Results, subject: Subject) -> list[Explained]:
    """Every setting that departs, in the order of the configuration, then evaluation and seeds."""
    theirs = shipped(subject.printed.key.study, subject.printed.key.label)
    ours = results.configs(subject.study).get(subject.label)
    found = []
    if theirs is not None and ours is not None:
        mine = settings_of(results, subject.study, subject.label)
        theirs, mine = _said_alike(theirs, mine), _said_alike(mine, theirs)
        for setting, words in differing(theirs, mine).items():
            effect = _training_effect(results, subject, setting, mine, theirs)
            found.append(Explained(setting, words, effect))
        found += _hyperparameters(results, subject, mine, theirs)
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
            effect = _training_effect(results, subject, setting, ours, target)
            yield Explained(setting, f"{name} {used[name]}{searched} instead of {value}", effect)


def _evaluation(results: Results, subject: Subject, known: set[str]) -> Iterator[Explained]:
    cell, printed = subject.cell, subject.printed
    study, label, measure = subject.study, subject.label, printed.key.measure
    ours, theirs = cell.key.epsilon or results.epsilon(study), printed.key.epsilon or results.paper.epsilon
    of_images = measure == "clean" or any(name == measure for name, _ in results.attacks(study, _shown(results, cell)))
    if measure != "clean" and of_images and ours != theirs:
        other = results.cell(replace(cell.key, epsilon=theirs))
        run = command(results, subject.cell, "evaluation.epsilon", theirs)
        effect = effect_text(other.sample, cell.sample, f"{study}/{label} at both radii") or _unknown(run)
        yield Explained("evaluation.epsilon", f"attack radius {ours} instead of {theirs}", effect)
    shown, wanted = _shown(results, cell), _wanted_checkpoint(results, subject)
    if of_images and shown != wanted and not known & set(SELECTION):
        effect = _same_trainings(results, subject) or _unknown(_selection_command(results, subject))
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
                return effect_text(other.sample, subject.cell.sample, where)
    return _unknown(command(results, subject.cell, "evaluation.images", None))


def _shown(results: Results, cell: TableCell) -> str:
    return cell.key.checkpoint or results.shown_checkpoint(cell.key.study)


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


def _training_effect(
    results: Results, subject: Subject, setting: str, ours: dict[str, Any], theirs: Mapping[str, Any]
) -> str:
    if setting in ANOTHER_STUDY:
        run = command_for_paper(results, subject.printed.key)
        return (
            f"unknown, and no setting that can be changed alone; this command would measure the paper's cell: `{run}`"
        )
    if setting in SELECTION:
        known = _same_trainings(results, subject)
        if known or setting != "selection.protocol":
            return known or _unknown(_selection_command(results, subject))
    values = at(ours, setting), at(theirs, setting)
    own, exact, nearby = f"{subject.study}/{subject.label}", "", ""
    for one, other, swapped in twins(results, setting, subject.printed.key.measure):
        first, second = one.settings, other.settings
        where = f"{other.name} against {one.name}"
        if canonical([at(first, setting), at(second, setting)]) == canonical(list(values)):
            found = effect_text(other.sample, one.sample, where)
            exact = found if one.name == own else exact or found
        elif not swapped:
            between = f"{at(first, setting)} to {at(second, setting)}, {where}"
            nearby = nearby or effect_text(other.sample, one.sample, between)
    if exact:
        return exact
    if setting == "selection.protocol":
        return _unknown(_selection_command(results, subject))
    others = f"; at other values: {nearby}" if nearby else ""
    return _unknown(command(results, subject.cell, setting, values[1])) + others


def _same_trainings(results: Results, subject: Subject) -> str:
    """At the paper's choice of the epoch, where they kept its weights."""
    cell, wanted = subject.cell, _wanted_checkpoint(results, subject)
    other = results.cell(replace(cell.key, checkpoint=wanted))
    return effect_text(other.sample, cell.sample, f"the same trainings at {wanted} against {_shown(results, cell)}")


def _selection_command(results: Results, subject: Subject) -> str:
    """Weights that the trainings did not keep need another training."""
    wanted = _wanted_checkpoint(results, subject)
    if results.protocol(subject.study) == "heldout" and wanted == "best_test":
        return command(results, subject.cell, "selection.protocol", "paper")
    return command(results, subject.cell, "evaluation.checkpoints", ["headline", wanted])


def _wanted_checkpoint(results: Results, subject: Subject) -> str:
    return subject.printed.key.checkpoint or results.paper.checkpoint


def _unknown(command: str) -> str:
    if not command.startswith("python"):
        return f"unknown; {command}"
    return f"unknown; this command would measure it: `{command}`".replace("|", "\\|")
