"""The effect of a setting: measured by stored cells that differ in it alone, else the command that would measure it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from reports.analysis.results import Results
from reports.analysis.statistics import Sample, compare
from reports.comparison.explanation.commands import command, papers_cell
from reports.comparison.explanation.settings import settings_of, value_at, without
from reports.comparison.explanation.subject import ExplainedCell
from reports.tables.markdown import escape
from reports.tables.table import Key, TableCell, signed
from sweep.store.encoding import canonical

# A different data set or network makes a different study. These settings cannot be changed alone.
ANOTHER_STUDY = ("dataset", "model")
SELECTION = ("selection.protocol", "checkpoint")


def training_effect(
    results: Results, subject: ExplainedCell, setting: str, ours: dict[str, Any], theirs: Mapping[str, Any]
) -> str:
    """Return the effect of a training setting in words, from our value to the paper's."""
    if setting in ANOTHER_STUDY:
        run = papers_cell(results, subject.printed.key.study, subject.printed.key.label)
        return (
            "unknown, because this setting cannot be changed alone; this command would measure the paper's cell: "
            f"`{run}`"
        )
    if setting in SELECTION:
        effect = same_trainings(results, subject)
        if effect or setting != "selection.protocol":
            return effect or unknown(selection_command(results, subject))
    values = value_at(ours, setting), value_at(theirs, setting)
    own, exact, nearby = f"{subject.study}/{subject.label}", "", ""
    for first, second, swapped in _twins(results, setting, subject.cell.key):
        before, after = value_at(first.settings, setting), value_at(second.settings, setting)
        where = f"{second.name} against {first.name}"
        if canonical([before, after]) == canonical(list(values)):
            effect = effect_of(second.sample, first.sample, where)
            exact = effect if first.name == own else exact or effect
        elif not swapped:
            nearby = nearby or effect_of(second.sample, first.sample, f"{before} to {after}, {where}")
    if exact:
        return exact
    if setting == "selection.protocol":
        return unknown(selection_command(results, subject))
    at_other_values = f"; at other values: {nearby}" if nearby else ""
    return unknown(command(results, subject.cell, setting, values[1])) + at_other_values


def same_trainings(results: Results, subject: ExplainedCell) -> str:
    """Return the effect of the paper's choice of epoch on the same trainings; '' if its weights were not stored."""
    cell, wanted = subject.cell, wanted_checkpoint(results, subject)
    other = results.cell(replace(cell.key, checkpoint=wanted))
    where = f"the same trainings at {wanted} against {shown_checkpoint(results, cell)}"
    return effect_of(other.sample, cell.sample, where)


def selection_command(results: Results, subject: ExplainedCell) -> str:
    """Return the command that measures the paper's choice of epoch. Weights not stored need another training."""
    wanted = wanted_checkpoint(results, subject)
    if results.protocol(subject.study) == "heldout" and wanted == "best_test":
        return command(results, subject.cell, "selection.protocol", "paper")
    return command(results, subject.cell, "evaluation.checkpoints", ["headline", wanted])


def wanted_checkpoint(results: Results, subject: ExplainedCell) -> str:
    """Return the checkpoint that the paper's number belongs to."""
    return subject.printed.key.checkpoint or results.paper.checkpoint


def effect_of(theirs: Sample | None, ours: Sample | None, where: str) -> str:
    """Return the difference of two samples in words; '' if one of them is missing."""
    if theirs is None or ours is None:
        return ""
    comparison = compare(theirs, ours)
    interval = (
        ""
        if comparison.low is None or comparison.high is None
        else f", 95 % {signed(comparison.low)} to {signed(comparison.high)}"
    )
    return f"{signed(comparison.difference)} ({escape(where)}{interval}; n = {theirs.n} and {ours.n})"


def unknown(command: str) -> str:
    """Return the words for an effect that is not measured yet, with the command that would measure it."""
    if not command.startswith("python"):
        return f"unknown; {command}"
    return f"unknown; this command would measure it: `{command}`".replace("|", "\\|")


def shown_checkpoint(results: Results, cell: TableCell) -> str:
    """Return the checkpoint that the cell's numbers belong to."""
    return cell.key.checkpoint or results.shown_checkpoint(cell.key.study)


@dataclass(frozen=True)
class _MeasuredCell:
    """A cell of the store with its settings."""

    name: str
    settings: dict[str, Any]
    sample: Sample


def _twins(results: Results, setting: str, key: Key) -> Iterator[tuple[_MeasuredCell, _MeasuredCell, bool]]:
    """Yield the pairs of stored cells that differ in this setting alone.

    Each pair comes in both orders; the flag marks the second one.
    key: the measure and checkpoint of the cells.
    """
    groups: dict[str, list[_MeasuredCell]] = {}
    for study, labels in results.labels.items():
        for label in labels:
            if label in results.configs(study):
                sample = results.cell(Key(study, label, key.measure, None, key.checkpoint)).sample
                settings = settings_of(results, study, label)
                if sample is not None:
                    # The evaluations must agree too: in their radius and in the rule that chose the epoch.
                    others, checkpoint = without(settings, setting), key.checkpoint or results.shown_checkpoint(study)
                    if setting in ("selection.validation", "selection.protocol"):  # these change that rule
                        others, checkpoint = without(others, "selection.protocol"), ""
                    rest = [others, results.epsilon(study), checkpoint]
                    group = groups.setdefault(json.dumps(canonical(rest), sort_keys=True), [])
                    group.append(_MeasuredCell(f"{study}/{label}", settings, sample))
    for group in groups.values():
        for first, second in combinations(group, 2):
            if canonical(value_at(first.settings, setting)) != canonical(value_at(second.settings, setting)):
                yield first, second, False
                yield second, first, True
