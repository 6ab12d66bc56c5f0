"""Columns that a later run of their study replaced: the settings that differ, and the models that remain stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sweep.store import layout
from sweep.store.base import Store
from sweep.store.records.manifest import Manifest, ReplacedColumn
from sweep.store.records.search import CandidateRecord, SearchRecord
from sweep.store.records.trial import TrialRecord
from trainers.config import TrialConfig

REPLACED = "models of replaced column"
MOST = 5  # maximum number of settings to list
# Evaluation settings that can replace a column without changing its configuration.
BESIDE = ("checkpoints", "diagnosed", "diagnostics", "epsilon", "norm")


class Difference(NamedTuple):
    """A setting, as written in a study file, with its two values."""

    key: str
    before: Any
    now: Any


def config_differences(before: TrialConfig, now: TrialConfig, *, chosen: bool = True) -> list[Difference]:
    """Return the settings in which two configurations differ, except seeds and, without `chosen`, hyperparameters."""
    old, new = (_settings(config) for config in (before, now))
    names = [key for key in {**old, **new} if chosen or not key.startswith("hyperparameters.")]
    return [Difference(key, old.get(key), new.get(key)) for key in names if old.get(key) != new.get(key)]


def column_differences(before: Manifest, now: Manifest, label: str) -> list[Difference]:
    """Return the settings in which a column differs between two manifests, or those of its study if it is gone."""
    old, new = before.config_by_label.get(label), now.config_by_label.get(label)
    found = []
    if old is not None and new is not None:
        waits = any(cell.trial is None for cell in (*before.cells, *now.cells) if cell.label == label)
        found = config_differences(old, new, chosen=not waits)
    elif new is None:
        # A change of shared settings replaces all columns of a study.
        parts = ("dataset", "model", "train", "selection", "train_images", "test_images")
        found = _between(*({key: each.study.get(key) for key in parts} for each in (before, now)))
    searches = [{search.label: search.id for search in each.searches}.get(label) for each in (before, now)]
    if None not in searches and searches[0] != searches[1]:
        base = str(searches[0]).rpartition("-")[0]
        found += _between(*({"search": {base: each.study.get("search", {}).get(base)}} for each in (before, now)))
    evaluations = [each.study.get("evaluation") or {} for each in (before, now)]
    return found + _between(*({"evaluation": {key: one.get(key) for key in BESIDE}} for one in evaluations))


def replaced_models(
    store: Store, manifests: Iterable[Manifest], selected: Mapping[str, set[str]]
) -> dict[str, dict[str, str]]:
    """Return the reasons why models are unused: trial folder name -> checkpoint -> description of the old column.

    Manifests remember their replaced columns. A finished trial that no manifest names and no search trained also
    belonged to a column, which is described from its record. Checkpoints that a study selects now are omitted.
    """
    manifests = list(manifests)
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for manifest in manifests:
        for column in manifest.replaced:
            reason = _reason(manifest, column.label, column.config)
            for trial in map(layout.short, column.trials):
                for checkpoint in set(column.checkpoints) - selected.get(trial, set()):
                    found[trial][checkpoint] = reason
    searched = _searched_trials(store)
    forgotten = [
        path
        for path in store.record_paths(TrialRecord)
        if (trial := layout.in_trial(path)[0]) not in selected and trial not in searched and trial not in found
    ]
    for record in store.records(TrialRecord, forgotten, skip=lambda _: None):
        reason = _nearest_reason(manifests, record.config)
        found[layout.short(record.trial)] = dict.fromkeys(record.checkpoints, reason)
    return dict(found)


def remembered(columns: Iterable[ReplacedColumn], selected: Mapping[str, set[str]]) -> tuple[ReplacedColumn, ...]:
    """Merge equal columns and drop trials whose checkpoints are all selected again."""
    joined: dict[tuple[str, str], ReplacedColumn] = {}
    for column in columns:
        key = (column.label, column.config.model_dump_json())
        other = joined.get(key, column)
        trials = sorted({*column.trials, *other.trials})
        checkpoints = sorted({*column.checkpoints, *other.checkpoints})
        joined[key] = column.model_copy(update={"trials": tuple(trials), "checkpoints": tuple(checkpoints)})
    found = []
    for _, column in sorted(joined.items()):
        wanted = set(column.checkpoints)
        trials = [trial for trial in column.trials if wanted - selected.get(layout.short(trial), set())]
        if trials:
            found.append(column.model_copy(update={"trials": tuple(trials)}))
    return tuple(found)


def _searched_trials(store: Store) -> set[str]:
    """Return the folder names of all trials that searches trained."""
    candidates = store.records(CandidateRecord, store.record_paths(CandidateRecord), skip=lambda _: None)
    found = {layout.short(candidate.trial) for candidate in candidates}
    for search in store.records(SearchRecord, store.record_paths(SearchRecord), skip=lambda _: None):
        found |= {layout.short(run.trial) for entry in search.candidates for run in entry.runs or (entry,)}
    return found


def _reason(manifest: Manifest, label: str, config: TrialConfig) -> str:
    now = manifest.config_by_label.get(label)
    title = f"{REPLACED} {label} of study {manifest.name}"
    if now is None:
        return f"{title}: the study has no such column now"
    found = config_differences(config, now)
    if not found:
        return f"{title}: with its present settings, of seeds or checkpoints that are not selected now"
    return f"{title}: {_listed(f'{one.key} {_text(one.before)} (now {_text(one.now)})' for one in found)}"


def _nearest_reason(manifests: Iterable[Manifest], config: TrialConfig) -> str:
    """Describe a trial that no manifest remembers by the most similar column of its method."""
    near = [
        (len(config_differences(config, now)), manifest.name, label, manifest)
        for manifest in manifests
        for label, now in manifest.config_by_label.items()
        if (now.method, now.dataset, now.model) == (config.method, config.dataset, config.model)
    ]
    if not near:
        return f"{REPLACED} {config.method} on {config.dataset}, {config.model}: no study has such a column now"
    _, _, label, manifest = min(near, key=lambda one: one[:3])
    return _reason(manifest, label, config)


def difference_words(differences: Iterable[Difference]) -> str:
    return _listed(f"{one.key} {_text(one.before)} -> {_text(one.now)}" for one in differences)


def _listed(parts: Iterable[str]) -> str:
    words = list(parts)
    more = [f"{len(words) - MOST} more"] if len(words) > MOST else []
    return ", ".join([*words[:MOST], *more])


def _text(value: Any) -> str:
    if value is None:
        return "absent"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _between(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    old, new = _flat(before), _flat(now)
    return [Difference(key, old.get(key), new.get(key)) for key in {**old, **new} if old.get(key) != new.get(key)]


def _settings(config: TrialConfig) -> dict[str, Any]:
    content = config.model_dump(mode="json", exclude={"seed"})
    return _flat({"train" if key == "recipe" else key: value for key, value in content.items()})


def _flat(content: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{path}{key}.")
        elif value is not None:
            found[f"{path}{key}"] = list(value) if isinstance(value, tuple) else value
    return found
