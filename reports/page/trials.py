"""The trials behind a page's numbers: seed, hyperparameters, commit, versions, device, time, and what went wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from reports.measures import in_norm, no_ball
from reports.names import attack_name
from reports.results import Results
from trainers.config import TrialConfig

LOG_LINES = 20
CHOSEN_LATER = "hyperparameters chosen by the search"


@dataclass(frozen=True)
class MethodTrials:
    """All seeds of one row. `facts` and `evaluations` are lines of (name, one value per seed)."""

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
    statuses: tuple[str, ...]  # that its trials have, each once


@dataclass(frozen=True)
class FailedTrial:
    study: str
    display: str
    seed: int
    status: str
    reason: str
    command: str
    log: str
    target: str


def study_trials(results: Results, study: str, index: int) -> list[MethodTrials]:
    data = results.data
    cells = data.cells[data.cells["study"] == study]
    rows_of = {str(label): group for label, group in cells.groupby("label", sort=False)}
    table = data.evaluations[data.evaluations["trial"].isin(set(cells["trial"]))]
    evaluations = {str(trial): group for trial, group in table.groupby("trial", sort=False)}
    configs = results.configs(study)
    found = []
    for place, (label, display) in enumerate(results.labels[study].items()):
        rows = [dict(zip(cells.columns, row, strict=True)) for row in rows_of[label].itertuples(index=False)]
        rows.sort(key=lambda row: row["seed"])
        lines, warnings = _evaluations([evaluations.get(row["trial"]) for row in rows])
        waits = all(row["status"] == "waiting" for row in rows)  # for the search
        found.append(
            MethodTrials(
                id=f"trials-{index}-{place}",
                study=study,
                label=label,
                display=display,
                state=_state(rows),
                hyperparameters=_pairs(results.hyperparameters[study, label]) if not waits else CHOSEN_LATER,
                config=_shown(configs.get(label), {"seed", "hyperparameters"} if waits else {"seed"}),
                seeds=tuple(int(row["seed"]) for row in rows),
                facts=_facts(rows),
                evaluations=lines,
                warnings=warnings,
                commands=tuple(dict.fromkeys(str(row["command"]) for row in rows if _known(row["command"]))),
                statuses=tuple(dict.fromkeys(str(row["status"]) for row in rows)),
            )
        )
    return found


def _shown(config: TrialConfig | None, without: set[str]) -> str:
    content = config.model_dump(mode="json", exclude=without) if config else {}
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True)


def failed_trials(results: Results) -> list[FailedTrial]:
    cells = results.data.cells
    places = {study: list(labels) for study, labels in results.labels.items()}
    order = list(results.data.manifests)
    found = []
    for row in cells[cells["status"].isin(["failed", "collapsed"])].to_dict("records"):
        study, label = str(row["study"]), str(row["label"])
        log = row["log"] if isinstance(row["log"], list) else []
        found.append(
            FailedTrial(
                study=study,
                display=str(row["display"]),
                seed=int(row["seed"]),
                status=str(row["status"]),
                reason=str(row["reason"] or "no reason was recorded"),
                command=_again(row),
                log="\n".join(str(line) for line in log[-LOG_LINES:]),
                target=f"trials-{order.index(study)}-{places[study].index(label)}",
            )
        )
    return found


def _again(row: Mapping[Any, Any]) -> str:
    """A collapse is a result: running the same configuration again gives the same one, so there is no command."""
    if row["status"] == "collapsed" or not _known(row["command"]):
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
        "status": [str(row["status"]) + (f": {row['reason']}" if _known(row["reason"]) else "") for row in rows],
        "trial": [str(row["trial"]) for row in rows],
        "epochs trained": [_epochs(row["last_epoch"]) for row in rows],
        "best epoch": [_best_epoch(row["checkpoints"]) for row in rows],
        "time": [_duration(row["wall_seconds"]) for row in rows],
        "device": [str(row["device"]) if _known(row["device"]) else "" for row in rows],
        "commit": [str(row["commit"])[:12] if _known(row["commit"]) else "" for row in rows],
        "versions": [_pairs(row["versions"], " ") if isinstance(row["versions"], dict) else "" for row in rows],
    }
    return tuple((name, tuple(values)) for name, values in lines.items() if any(values))


def _evaluations(groups: list[pd.DataFrame | None]) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...]]:
    """Accuracies by attack, radius and checkpoint, one column per seed; and what AutoAttack warned about."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    warnings: dict[str, None] = {}
    for place, group in enumerate(groups):
        if group is None:
            continue
        for row in group.to_dict("records"):
            key = (in_norm(str(row["attack"]), str(row["norm"])), str(row["epsilon"]), str(row["checkpoint"]))
            values = lines.setdefault(key, [""] * len(groups))
            shown = f"{100 * row['accuracy']:.2f} % of {row['images']}"
            # The same attack may have been run on other images too.
            values[place] = f"{values[place]}; {shown}" if values[place] else shown
            warnings |= dict.fromkeys(row["warnings"])
    named = []
    for (attack, epsilon, checkpoint), values in lines.items():
        radius = "" if no_ball(attack) else f", ε = {epsilon}"
        named.append((f"{attack_name(attack)}{radius}, {checkpoint}", tuple(values)))
    return tuple(named), tuple(warnings)


def _known(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _pairs(values: Mapping[str, Any], between: str = " = ") -> str:
    return ", ".join(f"{name}{between}{value}" for name, value in values.items())


def _epochs(last: Any) -> str:
    return str(last["epoch"] + 1) if isinstance(last, dict) and isinstance(last.get("epoch"), int) else ""


def _best_epoch(checkpoints: Any) -> str:
    if not isinstance(checkpoints, dict):
        return ""
    known = [
        f"{name.removeprefix('best_')} {facts['epoch'] + 1}"
        for name, facts in checkpoints.items()
        if name.startswith("best_") and isinstance(facts, dict) and isinstance(facts.get("epoch"), int)
    ]
    return ", ".join(known)


def _duration(seconds: Any) -> str:
    if not isinstance(seconds, int | float) or seconds != seconds:
        return ""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
