"""The command that computes our cell again with one setting as the paper has it."""

from __future__ import annotations

import json
import shlex
from typing import Any

from reports.departures import differing, shipped
from reports.explanation.settings import settings_of, value_at
from reports.explanation.subject import Subject
from reports.results import Results
from reports.significance import seed_list
from sweep.store.encoding import canonical
from sweep.studies.written import written_study


def command(results: Results, subject: Subject, setting: str, value: Any) -> str:
    """Our cell again with one setting as the paper has it, under a name of its own: our columns stay.

    Where the setting is one of the evaluation, the trainings are those in the store.
    """
    study, label = subject.study, subject.label
    name, changes = f"{study}_{setting.replace('.', '_')}", [(setting, value)]
    theirs, mine = shipped(study, label), settings_of(results, study, label)
    changed = {setting for setting, _ in changes}
    if ("selection.validation", 0) in changes and mine["selection"]["protocol"] == "heldout":
        changes = [*changes, ("selection.protocol", "paper")]  # nothing is held out that could choose the epoch
    if theirs is None:
        return _from_record(results, subject, changes, name)
    kept = [(setting, value_at(mine, setting)) for setting in differing(theirs, mine) if setting not in changed]
    values = theirs["hyperparameters"]
    for key, used in mine["hyperparameters"].items():
        if f"hyperparameters.{key}" not in changed and canonical(values.get(key)) != canonical(used):
            kept.append((f"hyperparameters.{key}", used))
    evaluation, usual = results.data.manifests[study].study.get("evaluation") or {}, written_study(study).evaluation
    for key, used in usual.model_dump(mode="json").items():
        if evaluation.get(key, used) != used and f"evaluation.{key}" not in changed:
            kept.append((f"evaluation.{key}", evaluation[key]))
    words = ["python", "-m", "sweep.run", "--study", study, *_run_words(subject), "--set", f"name={name}"]
    if label in written_study(study).searches():
        words += ["--set", f"search.{label}.pin=true"]
    for setting, value in (*kept, *changes):
        words += ["--set", f"{_study_key(study, label, setting)}={json.dumps(value)}"]
    return shlex.join([*words, *_store_words(results)])


def _from_record(results: Results, subject: Subject, changes: list[tuple[str, Any]], name: str) -> str:
    """Of a study that is not shipped: the command that made the trial, with the changes after it."""
    cells = results.data.cells
    made = cells[(cells["study"] == subject.study) & (cells["label"] == subject.label)]["command"]
    known = next((command for command in made if isinstance(command, str) and "--study" in command), None)
    settings = [f"{_study_key(None, subject.label, setting)}={json.dumps(value)}" for setting, value in changes]
    if known is None:
        return f"a copy of the study's file named {name}, with {', '.join(settings)}, would measure it"
    words = [*_run_words(subject), "--set", f"name={name}", *(word for one in settings for word in ("--set", one))]
    return f"{known} {shlex.join(words)}"


def _run_words(subject: Subject) -> list[str]:
    return ["--methods", subject.label, "--seeds", seed_list(list(subject.cell.seeds))]


def _store_words(results: Results) -> list[str]:
    return ["--store", results.data.store.uri]


def _study_key(study: str | None, label: str, setting: str) -> str:
    """Where a study's file says what a configuration says: a method's own entry wins over the study's."""
    head, _, rest = setting.partition(".")
    if head == "hyperparameters":
        return f"methods.{label}.hyperparameters.{rest}"
    part = {"recipe": "train", "selection": "selection"}.get(head)
    if part is None:
        plain = head in ("train_images", "test_images", "evaluation")
        return setting if plain else f"methods.{label}.{setting}"
    entry = written_study(study).methods[label] if study is not None else None
    own = getattr(entry, part) if entry is not None else {}
    name = rest.split(".")[0]
    return f"methods.{label}.{part}.{rest}" if name in own else f"{part}.{rest}"
