"""Commands that measure what one setting of a cell is worth: the cell again, with that setting as another has it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from reports.departures import differing, shipped
from reports.results import Results
from reports.significance import seed_list
from reports.tables.table import Key, TableCell
from sweep.store.encoding import canonical
from sweep.studies.check import SEARCHED
from sweep.studies.written import written_study

RUN = ("python", "-m", "sweep.run")
Changes = list[tuple[str, Any]]  # settings and their values


def settings_of(results: Results, study: str, label: str) -> dict[str, Any]:
    """The configuration with the hyperparameters that were used, which a search may have chosen."""
    config = results.configs(study)[label].model_dump(mode="json")
    return {**config, "hyperparameters": results.hyperparameters[study, label]}


def at(settings: Mapping[str, Any], setting: str) -> Any:
    found: Any = settings
    for name in setting.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def command_for_paper(results: Results, key: Key) -> str:
    """The paper's own cell, in the store that was read."""
    return shlex.join([*RUN, "--study", key.study, "--methods", key.label, *_store_words(results)])


def command(results: Results, cell: TableCell, setting: str, value: Any) -> str:
    """Our cell again with one setting changed, under a name of its own: our columns stay.

    Where the setting is one of the evaluation, the trainings are those in the store. A searched column is its method's
    with the values that were chosen.
    """
    study, label = cell.key.study, cell.label
    name, changes = f"{study}_{setting.replace('.', '_')}", [(setting, value)]
    mine = settings_of(results, study, label)
    if ("selection.validation", 0) in changes and mine["selection"]["protocol"] == "heldout":
        changes.append(("selection.protocol", "paper"))  # nothing is held out that could choose the epoch
    searches = results.searches(study)
    if label in searches:
        label, name = label.removesuffix(SEARCHED), f"{name}_{label}"
    theirs = shipped(study, label)
    if theirs is None:
        chosen = [] if label == cell.label else _values(mine, {}, setting)
        return _from_record(results, cell, label, [*chosen, *changes], name)
    kept = [(one, at(mine, one)) for one in differing(theirs, mine) if one != setting]
    kept += _values(mine, theirs, setting)
    evaluation, usual = results.data.manifests[study].study.get("evaluation") or {}, written_study(study).evaluation
    for key, used in usual.model_dump(mode="json").items():
        if evaluation.get(key, used) != used and f"evaluation.{key}" != setting:
            kept.append((f"evaluation.{key}", evaluation[key]))
    words = [*RUN, "--study", study, *_run_words(cell, label), "--set", f"name={name}"]
    if label in written_study(study).searches():
        words += _pinned(label)
    for key, used in (*kept, *changes):
        words += ["--set", f"{_study_key(study, label, key)}={json.dumps(used)}"]
    return shlex.join([*words, *_store_words(results)])


def _values(mine: Mapping[str, Any], theirs: Mapping[str, Any], setting: str) -> Changes:
    """Hyperparameters that differ from those written, the changed one aside."""
    written = theirs.get("hyperparameters", {})
    return [
        (f"hyperparameters.{key}", used)
        for key, used in mine["hyperparameters"].items()
        if f"hyperparameters.{key}" != setting and (key not in written or canonical(written[key]) != canonical(used))
    ]


def _from_record(results: Results, cell: TableCell, label: str, changes: Changes, name: str) -> str:
    """Of a study that is not shipped: the command that made the trial, with the changes after it."""
    cells = results.data.cells
    made = cells[(cells["study"] == cell.key.study) & (cells["label"] == cell.label)]["command"]
    known = next((command for command in made if isinstance(command, str) and "--study" in command), None)
    settings = [f"{_study_key(None, label, setting)}={json.dumps(value)}" for setting, value in changes]
    if known is None:
        return f"a copy of the study's file named {name}, with {', '.join(settings)}, would measure it"
    words = [*_run_words(cell, label), "--set", f"name={name}", *(word for one in settings for word in ("--set", one))]
    if label != cell.label:
        words += _pinned(label)
    # What was recorded may name the store as another machine sees it: the last one counts.
    return f"{known} {shlex.join([*words, *_store_words(results)])}"


def _pinned(label: str) -> list[str]:
    return ["--set", f"search.{label}.pin=true"]


def _run_words(cell: TableCell, label: str) -> list[str]:
    return ["--methods", label, "--seeds", seed_list(list(cell.seeds))]


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
