"""Messages on table columns that a run replaces by other settings, and how to keep both."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from sweep.store import layout
from sweep.store.base import Store
from sweep.store.manifests import agree, replaced_columns, united
from sweep.store.records.manifest import Manifest
from sweep.store.replaced import Difference, column_differences, difference_words
from sweep.studies.model import Study
from sweep.trials.cells import manifest, stored_cells


def replacements(study: Study, store: Store) -> list[str]:
    """Return the lines of a message; empty if the run only adds to the results stored under the study's name."""
    before = store.usable(Manifest, layout.manifest(study.name))
    if before is None:
        return []
    now = united(before, manifest(study, stored_cells(study, store)))
    columns: dict[tuple[str, bool], list[str]] = defaultdict(list)
    example = ""
    for label in _replaced_labels(before, now):
        differences = column_differences(before, now, label)
        if differences:
            stays = label in now.config_by_label
            columns[difference_words(differences), stays].append(label)
            example = example or (_example(study, label, differences) if stays else "")
    if not columns:
        return []
    return [
        f"this run replaces what the tables of study {study.name} show:",
        *(f"  {_title(labels, stays)}: {words}" for (words, stays), labels in columns.items()),
        "  nothing was deleted: models and results of the earlier settings stay in the store, and a run with these "
        "shows them again",
        f"  to keep both: --set name={study.name}_2, or a column of its own in the YAML{example}",
    ]


def _title(labels: list[str], stays: bool) -> str:
    return f"{'column' if len(labels) == 1 else 'columns'} {', '.join(labels)}{'' if stays else ' (no longer shown)'}"


def _replaced_labels(before: Manifest, now: Manifest) -> list[str]:
    """Return the replaced labels, including those with unfinished trainings or shown under other attacks."""
    lost = {column.label for column in replaced_columns(before, now)}
    trials = {(cell.label, cell.seed): cell.trial for cell in now.cells}
    for cell in before.cells:
        moved = cell.trial is not None and trials.get((cell.label, cell.seed)) != cell.trial
        if moved or not agree(before, now):
            lost.add(cell.label)
    return [label for label in dict.fromkeys(cell.label for cell in before.cells) if label in lost]


def _example(study: Study, label: str, differences: list[Difference]) -> str:
    """Return an example entry of `methods` with the settings of this run, or '' if no entry can express them."""
    content: dict[str, Any] = {"method": study.method(label)} if label in study.methods else {}
    for key, _, value in differences:
        *parts, name = key.split(".")
        if parts[:1] not in (["train"], ["hyperparameters"]) or value is None or not content:
            return ""
        below = content
        for part in parts:
            below = below.setdefault(part, {})
        below[name] = value
    return f", such as {label}_2: {json.dumps(content)}" if content else ""
