"""Estimates of the cost of a study's missing work, from counted passes and the measured speed of the devices."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray

from sweep.cluster import resources as devices
from sweep.cluster.session import connected
from sweep.errors import UserError
from sweep.evaluation.asked import Evaluation, evaluations_of
from sweep.listing import columns, size
from sweep.planning.speed import Speed, measure
from sweep.search.settings import GENERATION
from sweep.store.base import Store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.studies.model import Study, searched
from sweep.trials.candidates import most_candidates
from sweep.trials.cells import Cell, states, stored_cells
from sweep.trials.cost import PRUNED_SHARE, budget_hours, selection_passes, steps_of, training_seconds
from sweep.trials.disk import planned_bytes
from trainers.config import COMPUTED, TrialConfig
from trainers.measures.passes import forward_operations, step_bytes, step_count
from trainers.plugins import registry

SHARES = (0.5, PRUNED_SHARE, 1.0)  # trained share of a search's epochs: at best, as observed, without pruning
FORWARDS_OF_A_PASS = 2  # a forward, and a backward to the pixels
GIGABYTES = (8, 11, 16, 24, 32, 40, 48, 80, 141)  # of common GPUs
SLOW_PACE = 1e10  # floating point operations per second of a slow core
USABLE = 0.9  # share of a GPU's memory; the rest is lost to fragmentation


@dataclass(frozen=True)
class Missing:
    """Missing work: a training of a search or a cell, or evaluations of a stored training."""

    config: TrialConfig
    stage: str
    evaluations: list[Evaluation]
    waits: bool = False  # for a search that has not chosen its hyperparameters


def estimate(
    study: Study,
    cells: Sequence[Cell],
    store: Store,
    *,
    address: str | None = None,
    budget: str | None = None,
) -> dict[str, Any]:
    """Return the cost of the missing work: device-hours by stage, wall time on this cluster, disk and memory."""
    limit = budget_hours(budget)
    missing = missing_of(study, cells, store)
    wanted = {_key(one.config): one.config for one in missing}
    speeds, at_once, device = _measure_all(study, list(wanted.values()), address)
    low, rows, high = (
        _rows(missing, {key: _scaled(speed, name) for key, speed in speeds.items()}, share)
        for name, share in zip(("low", "", "high"), SHARES, strict=True)
    )
    total_low, total, total_high = (_total(one) for one in (low, rows, high))
    chain = _longest_chain(study, missing, speeds, at_once)
    ends = [
        _longest_chain(study, missing, {k: _scaled(v, n) for k, v in speeds.items()}, at_once) for n in ("low", "high")
    ]
    return {
        "device": device,
        "at_once": at_once,
        "methods": rows,
        "seconds_per_step": {key: speed["step"] for key, speed in speeds.items()},
        "device_hours": total,
        "device_hours_range": [total_low, total_high],
        "wall_hours": max(total / at_once, chain),
        # At best, all devices are busy until the longest chain ends; at worst, it starts when everything else is done.
        "wall_hours_range": [max(total_low / at_once, ends[0]), total_high / at_once + ends[1]],
        "chain_hours": chain,
        "disk_bytes": planned_bytes(study, store, at_once, cells),
        "memory": _memory(wanted.values()),
        "budget_hours": limit,
        "within_budget": limit is None or total <= limit,
    }


def counted(study: Study, cells: Sequence[Cell], store: Store) -> dict[str, Any]:
    """Return the passes and floating point operations of the missing work, without any measurement."""
    missing = missing_of(study, cells, store)
    rows: dict[str, dict[str, float]] = {}
    for one in missing:
        config = one.config
        row = rows.setdefault(
            config.method, {"trials": 0.0, "forwards": 0.0, "search": 0.0, "train": 0.0, "evaluate": 0.0}
        )
        operations = forward_operations(config.model, config.dataset) / 1e15
        row["forwards"] = step_count(config).forwards
        training = steps_of(config) * config.recipe.batch_size * row["forwards"]
        training += FORWARDS_OF_A_PASS * selection_passes(config)
        if one.stage != "evaluate":
            row[one.stage] += operations * training * (PRUNED_SHARE if one.stage == "search" else 1.0)
            row["trials"] += 1
        row["evaluate"] += operations * FORWARDS_OF_A_PASS * sum(evaluation.cost for evaluation in one.evaluations)
    configs = {_key(one.config): one.config for one in missing}
    return {
        "methods": rows,
        "petaflop": _total(rows),
        "memory": _memory(configs.values()),
        "disk_bytes": planned_bytes(study, store, 1, cells),
    }


def planned_hours(study: Study, store: Store, address: str | None, ask_hours: float) -> float | None:
    """Return the device-hours of the missing work, measured as in `sweep.plan`; None if they cannot be estimated.

    A study that takes less than `ask_hours` at a slow core's pace is only counted, not measured.
    """
    cells = stored_cells(study, store)
    try:
        hours = counted(study, cells, store)["petaflop"] * 1e15 / SLOW_PACE / 3600
        if hours > ask_hours:
            hours = estimate(study, cells, store, address=address)["device_hours"]
    except UserError:
        raise
    except Exception:  # a user's own network may not be countable, which is no reason not to train it
        return None
    return float(hours)


def _scaled(speed: Speed, end: str) -> Speed:
    factor = speed.get(end, 1.0)
    return {"step": factor * speed["step"], "pass": factor * speed["pass"]}


def _rows(missing: Sequence[Missing], speeds: Mapping[str, Speed], share: float) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    for one in missing:
        speed = speeds[_key(one.config)]
        row = rows.setdefault(one.config.method, {"search": 0.0, "train": 0.0, "evaluate": 0.0, "trials": 0.0})
        if one.stage != "evaluate":
            part = share if one.stage == "search" else 1.0
            row[one.stage] += part * training_seconds(one.config, speed) / 3600
            row["trials"] += 1
        row["evaluate"] += sum(evaluation_seconds(evaluation, speed) for evaluation in one.evaluations) / 3600
    return rows


def _total(rows: Mapping[str, Mapping[str, float]]) -> float:
    return sum(row[stage] for row in rows.values() for stage in ("search", "train", "evaluate"))


def _longest_chain(study: Study, missing: Sequence[Missing], speeds: Mapping[str, Speed], at_once: int) -> float:
    """Return the hours of the longest chain of dependent work: a search, then a training, then its longest attack."""
    searches: dict[str, float] = {}
    for label, search in study.searches().items():
        config = study.search_config(label, {})
        if any(one.stage == "search" and one.config.method == config.method for one in missing):
            generations = 1 if search.sampler == "grid" else math.ceil(most_candidates(study, label) / GENERATION)
            rounds = generations * min(2, len(search.seeds))  # further seeds follow the first
            searches[config.method] = rounds * training_seconds(config, speeds[_key(config)])
    longest = 0.0
    for one in missing:
        speed = speeds[_key(one.config)]
        seconds = training_seconds(one.config, speed) if one.stage == "train" else 0.0
        seconds += searches.get(one.config.method, 0.0) if one.waits else 0.0
        attacks = [
            evaluation_seconds(attack, speed) / min(at_once, math.ceil(attack.images / attack.piece))
            for attack in one.evaluations
        ]
        longest = max(longest, seconds + max(attacks, default=0.0))
    return max([longest, *searches.values()]) / 3600


def _memory(configs: Any) -> dict[str, dict[str, Any]]:
    """Return the parts of the peak GPU memory in bytes by network and method, and the smallest common GPU that fits."""
    found = {}
    for config in configs:
        parts = step_bytes(config)
        needed = sum(parts.values()) / 1024**3
        fitting = [one for one in GIGABYTES if USABLE * one >= needed]
        found[f"{config.model} {config.method}"] = {
            **parts,
            "gigabytes": needed,
            "gpu": fitting[0] if fitting else None,
        }
    return found


def describe(cost: Mapping[str, Any]) -> str:
    rows = [
        (name, f"{row['trials']:.0f}", *(f"{row[stage]:.3g}" for stage in ("search", "train", "evaluate")))
        for name, row in cost["methods"].items()
    ]
    lines = [f"estimated from a measurement on {cost['device']}, {cost['at_once']} trials at once; in device-hours:"]
    if rows:
        lines.append(columns(("method", "trials", "search", "train", "evaluate"), rows))
    hours, wall = cost["device_hours_range"], cost["wall_hours_range"]
    lines += [
        f"{cost['device_hours']:.3g} device-hours ({hours[0]:.3g} to {hours[1]:.3g}), {cost['wall_hours']:.3g} hours "
        f"of wall time ({wall[0]:.3g} to {wall[1]:.3g}), {size(cost['disk_bytes'])} of disk",
        f"the longest chain of search, training and evaluation takes {cost['chain_hours']:.3g} hours on any number of "
        "devices; a range goes from the fastest to the slowest measured step, and from half to all epochs of a search",
        *_memory_lines(cost["memory"]),
    ]
    if cost["budget_hours"] is not None:
        verdict = "suffices" if cost["within_budget"] else "does not suffice: the sweep would stop there"
        lines.append(f"the budget of {cost['budget_hours']:g} device-hours {verdict}")
    return "\n".join(lines)


def describe_counted(cost: Mapping[str, Any]) -> str:
    rows = [
        (
            name,
            f"{row['trials']:.0f}",
            f"{row['forwards']:.1f}",
            *(f"{row[stage]:.3g}" for stage in ("search", "train", "evaluate")),
        )
        for name, row in cost["methods"].items()
    ]
    lines = ["counted, not measured: forwards of a batch in one step, and 10^15 floating point operations:"]
    if rows:
        lines.append(columns(("method", "trials", "forwards", "search", "train", "evaluate"), rows))
    lines.append(f"{cost['petaflop']:.4g} x 10^15 operations, {size(cost['disk_bytes'])} of disk")
    return "\n".join([*lines, *_memory_lines(cost["memory"])])


def _memory_lines(memory: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line on the network and method that need the most memory, with the parts of the sum."""
    if not memory:
        return []
    name, most = max(memory.items(), key=lambda item: item[1]["gigabytes"])
    parts = " + ".join(f"{part} {most[part] / 1024**3:.1f}" for part in ("activations", "weights", "images", "context"))
    gpu = f"a GPU of {most['gpu']} GB suffices" if most["gpu"] else "no usual GPU holds it: lower train.batch_size"
    return [f"GPU memory, counted: at most {most['gigabytes']:.1f} GB, for {name} ({parts}); {gpu}"]


def evaluation_seconds(evaluation: Evaluation, speed: Mapping[str, float]) -> float:
    return evaluation.cost * speed["pass"]


def missing_of(study: Study, cells: Sequence[Cell], store: Store) -> list[Missing]:
    evaluated = set(store.record_paths(EvaluationRecord))
    found = []
    seen: set[str | None] = set()  # a search may choose the study's own values: one training for two columns
    for cell, state in zip(cells, states(list(cells), store), strict=True):
        if state in ("failed", "collapsed") or (cell.trial is not None and cell.trial in seen):
            continue
        seen.add(cell.trial)
        waits = cell.trial is None
        if waits:
            cell = replace(cell, trial="")  # its search has not chosen yet, so nothing of it can be stored
        left = [one for one in evaluations_of(study, cell) if one.record not in evaluated]
        stage = "evaluate" if state == "done" else "train"
        if left or stage == "train":
            found.append(Missing(cell.config, stage, left, waits))
    for label, search in study.searches().items():
        if any(cell.label == searched(label) and cell.trial is None for cell in cells):
            trainings = most_candidates(study, label) * len(search.seeds)
            found += [Missing(study.search_config(label, {}), "search", [])] * trainings
    return found


def _key(config: TrialConfig) -> str:
    recipe = config.recipe
    computed = " ".join(str(getattr(recipe, name)) for name in COMPUTED if getattr(recipe, name) is not None)
    facts = f"{config.model} {config.method} {recipe.batch_size} {recipe.attack.steps} {config.selection.steps}"
    return f"{facts} {computed}".strip()


def _measure_all(
    study: Study, configs: Sequence[TrialConfig], address: str | None
) -> tuple[dict[str, Speed], int, str]:
    """Return the seconds per step of each configuration, how many trials fit at once, and the device's name."""
    texts = [config.model_dump_json() for config in configs]
    if address is None:
        resources, at_once = devices.local_resources(study, os.cpu_count() or 1)
        answers = measure(texts, resources.cpus, registry.sources())
    else:
        with connected(address):
            chosen = devices.choose(study)
            at_once = devices.slots(chosen)
            if not any(chosen.fits(node["Resources"]) for node in devices.nodes()):
                raise UserError(f"one trial needs {chosen}, but no node of the cluster has that much")
            task = ray.remote(num_cpus=chosen.cpus, num_gpus=chosen.gpus, max_retries=1)(measure)
            answers = ray.get(task.remote(texts, chosen.cpus, registry.sources()))
    return dict(zip(map(_key, configs), answers["speeds"], strict=True)), at_once, str(answers["device"])
