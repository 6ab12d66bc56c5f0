"""What a setting is worth: cells of the store that differ in it alone, else the command that would measure it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reports.explanation.commands import command
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
        run = f"python -m sweep.run --study {subject.printed.key.study} --methods {subject.printed.key.label}"
        return (
            f"unknown, and no setting that can be changed alone; this command would measure the paper's cell: `{run}`"
        )
    if setting in SELECTION:
        return selection_effect(results, subject)
    values = value_at(ours, setting), value_at(theirs, setting)
    exact, nearby = "", ""
    for one, other, swapped in _twins(results, setting, subject.printed.key.measure):
        first, second = one.settings, other.settings
        where = f"{other.name} against {one.name}"
        if canonical([value_at(first, setting), value_at(second, setting)]) == canonical(list(values)):
            exact = exact or effect_of(other.sample, one.sample, where)
        elif not swapped:
            between = f"{value_at(first, setting)} to {value_at(second, setting)}, {where}"
            nearby = nearby or effect_of(other.sample, one.sample, between)
    return exact or unknown(command(results, subject, setting, values[1])) + (
        f"; at other values: {nearby}" if nearby else ""
    )


def selection_effect(results: Results, subject: Subject) -> str:
    """The same trainings at the paper's choice of the epoch; weights that they did not keep need another training."""
    cell = subject.cell
    wanted = subject.printed.key.checkpoint or results.paper.checkpoint
    other = results.cell(replace(cell.key, checkpoint=wanted))
    where = f"the same trainings at {wanted} against {shown_checkpoint(results, cell)}"
    if results.protocol(cell.key.study) == "heldout" and wanted == "best_test":
        run = command(results, subject, "selection.protocol", "paper")
    else:
        run = command(results, subject, "evaluation.checkpoints", ["headline", wanted])
    return effect_of(other.sample, cell.sample, where) or unknown(run)


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


def _twins(results: Results, setting: str, measure: str) -> Iterator[tuple[_Known, _Known, bool]]:
    """Pairs of cells of the store that differ in this setting alone, each in both orders; the second time swapped."""
    groups: dict[str, list[_Known]] = {}
    for study, labels in results.labels.items():
        for label in labels:
            if label in results.configs(study):
                sample = results.cell(Key(study, label, measure)).sample
                settings = settings_of(results, study, label)
                if sample is not None:
                    # What is measured must agree too: the radius, and the rule that chose the epoch.
                    kept, checkpoint = without(settings, setting), results.shown_checkpoint(study)
                    if setting == "selection.validation":  # without held-out images, another rule chooses the epoch
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
