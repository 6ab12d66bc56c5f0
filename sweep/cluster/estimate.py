"""What the rest of a study costs, from a measured micro-benchmark of each (model, method) on the devices at hand."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
import torch

from sweep.cluster import devices
from sweep.cluster.session import connected
from sweep.errors import UserError
from sweep.evaluation.asked import Evaluation, evaluations_of
from sweep.listing import columns, size
from sweep.store.base import Store
from sweep.store.records import EvaluationRecord
from sweep.studies.model import Study, searched
from sweep.trials.cells import Cell, states
from sweep.trials.cost import PRUNED_SHARE, budget_hours, training_seconds
from sweep.trials.disk import planned_bytes
from sweep.trials.provenance import device, device_name
from trainers import composition, models, registry
from trainers.config import TrialConfig
from trainers.data import dataset_facts
from trainers.data.bundle import DataBundle
from trainers.evaluate import pgd_accuracy
from trainers.train import Training

SAMPLE_CPU = 16  # images per measured batch of a large network on a CPU; a whole batch would take minutes


@dataclass(frozen=True)
class Missing:
    """Something that is not stored: a training of a search or a cell, or evaluations of a stored one."""

    config: TrialConfig
    stage: str
    evaluations: list[Evaluation]


def estimate(
    study: Study,
    cells: Sequence[Cell],
    store: Store,
    *,
    address: str | None = None,
    budget: str | None = None,
) -> dict[str, Any]:
    """Device-hours by stage, wall time on this cluster, disk; what is stored already costs nothing."""
    limit = budget_hours(budget)
    missing = _missing(study, cells, store)
    wanted = {_key(one.config): one.config for one in missing}
    speeds, at_once, device = _measure_all(study, list(wanted.values()), address)
    rows: dict[str, dict[str, float]] = {}
    for one in missing:
        speed = speeds[_key(one.config)]
        row = rows.setdefault(one.config.method, {"search": 0.0, "train": 0.0, "evaluate": 0.0, "trials": 0.0})
        share = PRUNED_SHARE if one.stage == "search" else 1.0 if one.stage == "train" else 0.0
        hours = share * training_seconds(one.config, speed) / 3600
        row["search" if one.stage == "search" else "train"] += hours
        row["evaluate"] += sum(evaluation_seconds(evaluation, speed) for evaluation in one.evaluations) / 3600
        row["trials"] += one.stage != "evaluate"
    total = sum(row[stage] for row in rows.values() for stage in ("search", "train", "evaluate"))
    trained = [one.config for one in missing if one.stage != "evaluate"]
    longest = max((training_seconds(config, speeds[_key(config)]) / 3600 for config in trained), default=0.0)
    return {
        "device": device,
        "at_once": at_once,
        "methods": rows,
        "seconds_per_step": {key: speed["step"] for key, speed in speeds.items()},
        "device_hours": total,
        "wall_hours": max(total / at_once, longest) if total else 0.0,
        "disk_bytes": planned_bytes(study, store, at_once, cells),
        "budget_hours": limit,
        "within_budget": limit is None or total <= limit,
    }


def describe(cost: Mapping[str, Any]) -> str:
    rows = [
        (name, f"{row['trials']:.0f}", *(f"{row[stage]:.3g}" for stage in ("search", "train", "evaluate")))
        for name, row in cost["methods"].items()
    ]
    lines = [f"estimated from a measurement on {cost['device']}, {cost['at_once']} trials at once; in device-hours:"]
    if rows:
        lines.append(columns(("method", "trials", "search", "train", "evaluate"), rows))
    lines.append(
        f"{cost['device_hours']:.3g} device-hours, {cost['wall_hours']:.3g} hours of wall time, "
        f"{size(cost['disk_bytes'])} of disk"
    )
    if cost["budget_hours"] is not None:
        verdict = "suffices" if cost["within_budget"] else "does not suffice: the sweep would stop there"
        lines.append(f"the budget of {cost['budget_hours']:g} device-hours {verdict}")
    return "\n".join(lines)


def evaluation_seconds(evaluation: Evaluation, speed: Mapping[str, float]) -> float:
    return evaluation.cost * speed["pass"]


def _missing(study: Study, cells: Sequence[Cell], store: Store) -> list[Missing]:
    evaluated = set(store.record_paths(EvaluationRecord))
    found = []
    seen: set[str | None] = set()  # a search may choose the study's own values: one training for two columns
    for cell, state in zip(cells, states(list(cells), store), strict=True):
        if state in ("failed", "collapsed") or (cell.trial is not None and cell.trial in seen):
            continue
        seen.add(cell.trial)
        if cell.trial is None:
            cell = replace(cell, trial="")  # its search has not chosen: nothing of it can be stored
        left = [one for one in evaluations_of(study, cell) if one.record not in evaluated]
        stage = "evaluate" if state == "done" else "train"
        if left or stage == "train":
            found.append(Missing(cell.config, stage, left))
    for label, search in study.searches().items():
        if any(cell.label == searched(label) and cell.trial is None for cell in cells):
            found += [Missing(study.search_config(label, {}), "search", [])] * (search.candidates * len(search.seeds))
    return found


def _key(config: TrialConfig) -> str:
    attack = config.recipe.attack
    return f"{config.model} {config.method} {config.recipe.batch_size} {attack.steps} {config.selection.steps}"


def _measure_all(
    study: Study, configs: Sequence[TrialConfig], address: str | None
) -> tuple[dict[str, dict[str, float]], int, str]:
    """Seconds per step of each configuration, how many trials fit at once, and the device."""
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


def measure(texts: Sequence[str], cpus: float, sources: Mapping[str, str]) -> dict[str, Any]:
    """Times steps of these configurations on random images, on the device of this process."""
    for name, source in sources.items():
        registry.load_source(name, source)
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, int(cpus)))
    try:
        speeds = [_speed(TrialConfig.model_validate(json.loads(text)), device()) for text in texts]
    finally:
        torch.set_num_threads(threads)
    return {"speeds": speeds, "device": device_name()}


def _speed(config: TrialConfig, device: str) -> dict[str, float]:
    """Seconds of one optimizer step, and of one forward-backward pass per image."""

    facts = dataset_facts(config.dataset)
    quick = device == "cuda" or models.numbers(config.model, facts.classes, facts.shape) < 10**6
    sample = config.recipe.batch_size if quick else min(SAMPLE_CPU, config.recipe.batch_size)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2 * sample, *facts.shape), dtype=torch.uint8, generator=generator)
    labels = torch.arange(2 * sample) % facts.classes
    bundle = DataBundle(config.dataset, images, labels, images[:sample], labels[:sample])
    # Two epochs are timed, neither of them the last one, which is evaluated.
    epochs = max(3, config.recipe.epochs)
    recipe = config.recipe.model_copy(update={"batch_size": sample, "steps": None, "epochs": epochs})
    selection = config.selection.model_copy(
        update={"validation": 0, "images": None, "every": 10**6, "protocol": "paper"}
    )
    wrappers = {name: wrapper for name, wrapper in config.wrappers.items() if not wrapper.needs_files}
    name = "+".join((composition.parse(config.method)[0], *wrappers))
    short = config.model_copy(
        update={
            "method": name,
            "wrappers": wrappers,
            "recipe": recipe,
            "selection": selection,
            "train_images": None,
            "test_images": None,
        }
    )
    with tempfile.TemporaryDirectory(prefix="robustsweep-cost-") as folder:
        training = Training(short, Path(folder), None, torch.device(device), bundle)
        training.epoch = max(0, recipe.epochs - 3)  # past every warm-up, short of the last epoch's evaluation
        training.run_epoch()
        started = time.perf_counter()
        training.run_epoch()
        step = (time.perf_counter() - started) / 2
        model, steps = training.evaluated_model, 3
        started = time.perf_counter()
        pgd_accuracy(model, images[:sample], labels[:sample], epsilon=0.03, step_size=0.01, steps=steps, device=device)
        single = (time.perf_counter() - started) / (steps + 0.4) / sample
    return {"step": step * config.recipe.batch_size / sample, "pass": single}
