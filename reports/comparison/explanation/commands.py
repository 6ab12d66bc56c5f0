"""Commands that measure the effect of one setting: they run the cell again with another value of that setting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reports.analysis.results import Results
from reports.comparison.departures import differing, shipped
from reports.comparison.explanation.settings import settings_of, value_at
from reports.tables.table import TableCell
from sweep.commands import given, only, run, spelled, store_words
from sweep.listing import seed_list
from sweep.store.encoding import canonical
from sweep.studies.check_search import SEARCHED
from sweep.studies.written import written_study

Changes = list[tuple[str, Any]]  # settings with their new values


def command(results: Results, cell: TableCell, setting: str, value: Any) -> str:
    """Return the command that runs our cell again with one setting changed, under a new study name.

    The existing columns stay. Changed settings of the evaluation reuse the stored trainings. A searched column becomes
    its method with the values that the search chose.
    """
    study, label = cell.key.study, cell.label
    name, changes = f"{study}_{setting.replace('.', '_')}", [(setting, value)]
    mine = settings_of(results, study, label)
    if ("selection.validation", 0) in changes and mine["selection"]["protocol"] == "heldout":
        changes.append(("selection.protocol", "paper"))  # there are no held-out images to choose the epoch
    if label in results.searches(study):
        label, name = label.removesuffix(SEARCHED), f"{name}_{label}"
    theirs = shipped(study, label)
    if theirs is None:
        chosen = [] if label == cell.label else _values(mine, {}, setting)
        return _from_record(results, cell, label, [*chosen, *changes], name)
    unchanged = [(departed, value_at(mine, departed)) for departed in differing(theirs, mine) if departed != setting]
    unchanged += _values(mine, theirs, setting)
    evaluation, usual = results.data.manifests[study].study.get("evaluation") or {}, written_study(study).evaluation
    for key, default in usual.model_dump(mode="json").items():
        if evaluation.get(key, default) != default and f"evaluation.{key}" != setting:
            unchanged.append((f"evaluation.{key}", evaluation[key]))
    words = ["--study", study, *_data_words(results, study), *_run_words(results, cell, label), "--set", f"name={name}"]
    if label in written_study(study).searches():
        words += _pinned(label)
    for key, used in (*unchanged, *changes):
        words += ["--set", f"{_study_key(study, label, key)}={json.dumps(used)}"]
    return spelled("sweep.run", *words, *store_words(results.data.store.uri))


def papers_cell(results: Results, study: str, label: str) -> str:
    """Return the command that runs a label of a shipped study as written, without its search."""
    pinned = _pinned(label) if label in written_study(study).searches() else []
    return results.data.run_command(study, "--methods", label, *pinned)


def _values(mine: Mapping[str, Any], theirs: Mapping[str, Any], setting: str) -> Changes:
    """Return our hyperparameters that differ from the written ones, except for the changed one."""
    written = theirs.get("hyperparameters", {})
    return [
        (f"hyperparameters.{key}", used)
        for key, used in mine["hyperparameters"].items()
        if f"hyperparameters.{key}" != setting and (key not in written or canonical(written[key]) != canonical(used))
    ]


def _from_record(results: Results, cell: TableCell, label: str, changes: Changes, name: str) -> str:
    """Return the command for a study that is not shipped: the one that made the trial, with the changes appended."""
    study, cells = cell.key.study, results.data.cells
    commands = cells[(cells["study"] == study) & (cells["label"] == cell.label)]["command"]
    trained = next((command for command in commands if isinstance(command, str) and "--study" in command), None)
    original = results.data.manifests[study].command or trained
    settings = [f"{_study_key(None, label, setting)}={json.dumps(value)}" for setting, value in changes]
    if original is None:
        return f"a copy of the study's file named {name}, with {', '.join(settings)}, would measure it"
    words = [
        *_run_words(results, cell, label),
        "--set",
        f"name={name}",
        *(word for setting in settings for word in ("--set", setting)),
    ]
    if label != cell.label:
        words += _pinned(label)
    return run(study, original, results.data.store.uri, *words)


def _pinned(label: str) -> list[str]:
    return ["--set", f"search.{label}.pin=true"]


def _run_words(results: Results, cell: TableCell, label: str) -> list[str]:
    """Return the options that choose methods and seeds. A margin ratio needs its reference label's trainings too."""
    ratio = results.paper.margin_ratio if cell.key.measure == "margin_ratio" else None
    labels = [label, *([ratio.under.label] if ratio is not None else [])]
    return ["--methods", ",".join(dict.fromkeys(labels)), "--seeds", seed_list(list(cell.seeds))]


def _data_words(results: Results, study: str) -> list[str]:
    """Return the option with the data folder that the study was run with."""
    made_by = results.data.manifests[study].command
    return [] if made_by is None else only(given(made_by), ("--data-dir",))


def _study_key(study: str | None, label: str, setting: str) -> str:
    """Return the key of a study file for a setting of a configuration. A method's own entry overrides the study's."""
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
