"""The trials behind a page's numbers: seed, hyperparameters, commit, versions, device, time and failures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from reports.analysis.measures import in_norm, no_ball
from reports.analysis.names import attack_name
from reports.analysis.results import Results
from trainers.config import TrialConfig

LOG_LINES = 20
CHOSEN_LATER = "hyperparameters chosen by the search"


@dataclass(frozen=True)
class MethodTrials:
    """All seeds of one method. `facts` and `evaluations` are rows of a name and one value per seed."""

    id: str
    study: str
    label: str
    display: str
    state: str
    hyperparameters: str
    config: str
    seeds: tuple[int, ...]
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    evaluations: tuple[tuple[str, tuple[str, ...]], ...]
    warnings: tuple[str, ...]
    commands: tuple[str, ...]
    statuses: tuple[str, ...]  # distinct statuses of its trials


@dataclass(frozen=True)
class FailureRow:
    """A failed or collapsed trial; `target` is the id of its method's trials on the page."""

    study: str
    display: str
    seed: int
    status: str
    reason: str
    command: str
    log: str
    target: str


def study_trials(results: Results, study: str, index: int) -> list[MethodTrials]:
    """Return the trials of each method, in the tables' order; `index` is the study's number on the page."""
    data = results.data
    cells = data.cells[data.cells["study"] == study]
    rows_of = {str(label): group for label, group in cells.groupby("label", sort=False)}
    table = data.evaluations[data.evaluations["trial"].isin(set(cells["trial"]))]
    evaluations = {str(trial): group for trial, group in table.groupby("trial", sort=False)}
    configs = results.configs(study)
    methods = []
    for position, (label, display) in enumerate(results.labels[study].items()):
        rows = [dict(zip(cells.columns, row, strict=True)) for row in rows_of[label].itertuples(index=False)]
        rows.sort(key=lambda row: row["seed"])
        lines, warnings = _evaluations([evaluations.get(row["trial"]) for row in rows])
        awaits_search = all(row["status"] == "waiting" for row in rows)
        methods.append(
            MethodTrials(
                id=f"trials-{index}-{position}",
                study=study,
                label=label,
                display=display,
                state=_state(rows),
                hyperparameters=_pairs(results.hyperparameters[study, label]) if not awaits_search else CHOSEN_LATER,
                config=_config_text(configs.get(label), {"seed", "hyperparameters"} if awaits_search else {"seed"}),
                seeds=tuple(int(row["seed"]) for row in rows),
                facts=_facts(rows),
                evaluations=lines,
                warnings=warnings,
                commands=tuple(dict.fromkeys(str(row["command"]) for row in rows if _is_text(row["command"]))),
                statuses=tuple(dict.fromkeys(str(row["status"]) for row in rows)),
            )
        )
    return methods


def _config_text(config: TrialConfig | None, without: set[str]) -> str:
    content = config.model_dump(mode="json", exclude=without) if config else {}
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True)


def failed_trials(results: Results) -> list[FailureRow]:
    cells = results.data.cells
    label_order = {study: list(labels) for study, labels in results.labels.items()}
    study_order = list(results.data.manifests)
    failures = []
    for row in cells[cells["status"].isin(["failed", "collapsed"])].to_dict("records"):
        study, label = str(row["study"]), str(row["label"])
        log = row["log"] if isinstance(row["log"], list) else []
        failures.append(
            FailureRow(
                study=study,
                display=str(row["display"]),
                seed=int(row["seed"]),
                status=str(row["status"]),
                reason=str(row["reason"] or "no reason was recorded"),
                command=_retry_command(row),
                log="\n".join(str(line) for line in log[-LOG_LINES:]),
                target=f"trials-{study_order.index(study)}-{label_order[study].index(label)}",
            )
        )
    return failures


def _retry_command(row: Mapping[Any, Any]) -> str:
    """Return the command that retries a trial, or "" for a collapse, which would happen again."""
    if row["status"] == "collapsed" or not _is_text(row["command"]):
        return ""
    command = str(row["command"])
    return command if "--retry-failed" in command else f"{command} --retry-failed"


def _state(rows: list[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        counts[str(row["status"])] = counts.get(str(row["status"]), 0) + 1
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def _facts(rows: list[dict[str, Any]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    lines = {
        "status": [str(row["status"]) + (f": {row['reason']}" if _is_text(row["reason"]) else "") for row in rows],
        "trial": [str(row["trial"]) for row in rows],
        "epochs trained": [_epochs(row["last_epoch"]) for row in rows],
        "best epoch": [_best_epoch(row["checkpoints"]) for row in rows],
        "time": [_duration(row["wall_seconds"]) for row in rows],
        "device": [str(row["device"]) if _is_text(row["device"]) else "" for row in rows],
        "commit": [str(row["commit"])[:12] if _is_text(row["commit"]) else "" for row in rows],
        "versions": [_pairs(row["versions"], " ") if isinstance(row["versions"], dict) else "" for row in rows],
    }
    return tuple((name, tuple(values)) for name, values in lines.items() if any(values))


def _evaluations(groups: list[pd.DataFrame | None]) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...]]:
    """Return accuracies by attack, radius and checkpoint with one value per seed, and AutoAttack's warnings."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    warnings: dict[str, None] = {}
    for position, group in enumerate(groups):
        if group is None:
            continue
        for row in group.to_dict("records"):
            key = (in_norm(str(row["attack"]), str(row["norm"])), str(row["epsilon"]), str(row["checkpoint"]))
            values = lines.setdefault(key, [""] * len(groups))
            accuracy = f"{100 * row['accuracy']:.2f} % of {row['images']}"
            # The same attack may have run on different images too.
            values[position] = f"{values[position]}; {accuracy}" if values[position] else accuracy
            warnings |= dict.fromkeys(row["warnings"])
    named = []
    for (attack, epsilon, checkpoint), values in lines.items():
        radius = "" if no_ball(attack) else f", ε = {epsilon}"
        named.append((f"{attack_name(attack)}{radius}, {checkpoint}", tuple(values)))
    return tuple(named), tuple(warnings)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _pairs(values: Mapping[str, Any], separator: str = " = ") -> str:
    return ", ".join(f"{name}{separator}{value}" for name, value in values.items())


def _epochs(last: Any) -> str:
    return str(last["epoch"] + 1) if isinstance(last, dict) and isinstance(last.get("epoch"), int) else ""


def _best_epoch(checkpoints: Any) -> str:
    if not isinstance(checkpoints, dict):
        return ""
    epochs = [
        f"{name.removeprefix('best_')} {facts['epoch'] + 1}"
        for name, facts in checkpoints.items()
        if name.startswith("best_") and isinstance(facts, dict) and isinstance(facts.get("epoch"), int)
    ]
    return ", ".join(epochs)


def _duration(seconds: Any) -> str:
    if not isinstance(seconds, int | float) or seconds != seconds:
        return ""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
