"""What a setting is worth: cells of the store that differ in it alone, else the command that would measure it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reports.explanation.commands import command, papers_cell
from reports.explanation.settings import settings_of, value_at, without
from reports.explanation.subject import Subject
from reports.results import Results
from reports.statistics import Sample, compare
from reports.tables.markdown import escape
from reports.tables.table import Key, TableCell, signed
from sweep.store.encoding import canonical

# Another data set or network is another study: no setting that could be changed alone.
ANOTHER_STUDY = ("dataset", "model")
SELECTION = ("selection.protocol", "checkpoint")


def training_effect(
    results: Results, subject: Subject, setting: str, ours: dict[str, Any], theirs: Mapping[str, Any]
) -> str:
    if setting in ANOTHER_STUDY:
        run = papers_cell(results, subject.printed.key.study, subject.printed.key.label)
        return (
            f"unknown, and no setting that can be changed alone; this command would measure the paper's cell: `{run}`"
        )
    if setting in SELECTION:
        known = same_trainings(results, subject)
        if known or setting != "selection.protocol":
            return known or unknown(selection_command(results, subject))
    values = value_at(ours, setting), value_at(theirs, setting)
    own, exact, nearby = f"{subject.study}/{subject.label}", "", ""
    for one, other, swapped in _twins(results, setting, subject.cell.key):
        first, second = one.settings, other.settings
        where = f"{other.name} against {one.name}"
        if canonical([value_at(first, setting), value_at(second, setting)]) == canonical(list(values)):
            found = effect_of(other.sample, one.sample, where)
            exact = found if one.name == own else exact or found
        elif not swapped:
            between = f"{value_at(first, setting)} to {value_at(second, setting)}, {where}"
            nearby = nearby or effect_of(other.sample, one.sample, between)
    if exact:
        return exact
    if setting == "selection.protocol":
        return unknown(selection_command(results, subject))
    others = f"; at other values: {nearby}" if nearby else ""
    return unknown(command(results, subject.cell, setting, values[1])) + others


def same_trainings(results: Results, subject: Subject) -> str:
    """At the paper's choice of the epoch, where they kept its weights."""
    cell, wanted = subject.cell, wanted_checkpoint(results, subject)
    other = results.cell(replace(cell.key, checkpoint=wanted))
    where = f"the same trainings at {wanted} against {shown_checkpoint(results, cell)}"
    return effect_of(other.sample, cell.sample, where)


def selection_command(results: Results, subject: Subject) -> str:
    """Weights that the trainings did not keep need another training."""
    wanted = wanted_checkpoint(results, subject)
    if results.protocol(subject.study) == "heldout" and wanted == "best_test":
        return command(results, subject.cell, "selection.protocol", "paper")
    return command(results, subject.cell, "evaluation.checkpoints", ["headline", wanted])


def wanted_checkpoint(results: Results, subject: Subject) -> str:
    return subject.printed.key.checkpoint or results.paper.checkpoint


def effect_of(theirs: Sample | None, ours: Sample | None, where: str) -> str:
    """'' where one of the two is not there."""
    if theirs is None or ours is None:
        return ""
    found = compare(theirs, ours)
    interval = "" if found.low is None or found.high is None else f", 95 % {signed(found.low)} to {signed(found.high)}"
    return f"{signed(found.difference)} ({escape(where)}{interval}; n = {theirs.n} and {ours.n})"


def unknown(command: str) -> str:
    if not command.startswith("python"):
        return f"unknown; {command}"
    return f"unknown; this command would measure it: `{command}`".replace("|", "\\|")


def shown_checkpoint(results: Results, cell: TableCell) -> str:
    return cell.key.checkpoint or results.shown_checkpoint(cell.key.study)


@dataclass(frozen=True)
class _Known:
    name: str
    settings: dict[str, Any]
    sample: Sample


def _twins(results: Results, setting: str, asked: Key) -> Iterator[tuple[_Known, _Known, bool]]:
    """Pairs of cells of the store that differ in this setting alone, each in both orders; the second time swapped."""
    groups: dict[str, list[_Known]] = {}
    for study, labels in results.labels.items():
        for label in labels:
            if label in results.configs(study):
                sample = results.cell(Key(study, label, asked.measure, None, asked.checkpoint)).sample
                settings = settings_of(results, study, label)
                if sample is not None:
                    # What is measured must agree too: the radius, and the rule that chose the epoch.
                    kept, checkpoint = without(settings, setting), asked.checkpoint or results.shown_checkpoint(study)
                    if setting in ("selection.validation", "selection.protocol"):  # another rule chooses the epoch
                        kept, checkpoint = without(kept, "selection.protocol"), ""
                    rest = [kept, results.epsilon(study), checkpoint]
                    group = groups.setdefault(json.dumps(canonical(rest), sort_keys=True), [])
                    group.append(_Known(f"{study}/{label}", settings, sample))
    for group in groups.values():
        for place, one in enumerate(group):
            for other in group[place + 1 :]:
                if canonical(value_at(one.settings, setting)) != canonical(value_at(other.settings, setting)):
                    yield one, other, False
                    yield other, one, True
