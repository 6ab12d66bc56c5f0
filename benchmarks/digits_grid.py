"""The (M, lambda) grid of SOVR on `digits`: the study's own candidates, their held-out curves and AutoAttack's verdict.

A point is trained as the study's search would train it, and its kept epoch is attacked with the whole AutoAttack on all
test images. `recorded/digits_autoattack.json` says with which settings it was made; what was made with others is not
mixed with what is trained now, but overwritten by it.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded" / "digits_autoattack.json"
SEEDS = (1000, 1001)
MEASURED = ("margin", "pgd", "clean")  # in every measured epoch, as a search does
OBJECTIVES = (*MEASURED, "quick")  # of the kept epoch alone: in every one it would cost more than the training
DRAWS = 2000  # of the bootstrap
RECORD_HELP = (
    "train what the recorded grid lacks; where the study's settings are no longer those of its record, the whole grid "
    "is trained anew, and the first training overwrites the record"
)

Run = dict[str, Any]  # a curve for each objective, and AutoAttack's accuracies
Runs = dict[str, dict[str, Run]]  # by point and seed


def key(values: dict[str, Any]) -> str:
    return f"{values['M']:g} {values['lam']:g}"


def config(values: dict[str, Any], seed: int) -> Any:
    from sweep.studies.model import Study

    return Study.load("digits", methods=["sovr"]).search_config("sovr", values, seed)


def train_point(task: tuple[dict[str, Any], int]) -> tuple[str, int, Run]:
    import torch
    from safetensors.torch import load_file

    from trainers import assembly
    from trainers.train import train

    values, seed = task
    torch.set_num_threads(1)
    trial = config(values, seed)
    with tempfile.TemporaryDirectory() as folder:
        outcome = train(trial, folder=Path(folder))
        weights = load_file(Path(folder) / f"{trial.selection.headline}.safetensors")
    model = assembly.build_model(trial)
    model.load_state_dict(weights)
    found = {name: [row.get(f"validation_{name}_accuracy") for row in outcome["curve"]] for name in MEASURED}
    curves = {name: [None if one is None else round(one, 4) for one in curve] for name, curve in found.items()}
    attacked = {**curves, "quick": [attacked_accuracy(model, trial, "quick", seed, held_out=True)]}
    return key(values), seed, {**attacked, "autoattack": {"test": attacked_accuracy(model, trial, "autoattack")}}


def attacked_accuracy(model: Any, trial: Any, name: str, seed: int = 0, *, held_out: bool = False) -> float:
    """Of the epoch that the study's rule keeps, as the tables show it."""
    import torch

    from sweep.studies.model import Study
    from trainers import assembly, evaluate, suites
    from trainers.attack import AttackSettings

    asked = Study.load("digits").evaluation
    data = assembly.prepare_data(trial, None, None, torch.device("cpu"))
    settings = AttackSettings(epsilon=asked.epsilon, classes=data.classes, batch_size=asked.batch_size, seed=seed)
    (attack,) = suites.attacks((name,), settings)
    images, labels = data.test_images, data.test_labels
    if held_out:
        assert data.validation_images is not None and data.validation_labels is not None
        images, labels = data.validation_images, data.validation_labels
    found = evaluate.evaluate_attack(evaluate.ready(model, "cpu"), images, labels, attack)
    return round(float(found.correct.float().mean()), 4)


def recorded() -> dict[str, Any]:
    """The settings that all points share, and the runs."""
    return json.loads(RECORDED.read_text()) if RECORDED.exists() else {"config": {}, "runs": {}}


def record(processes: int) -> None:
    """Trains what is missing of the grid, seed by seed; each training is kept as soon as it is done."""
    import search_spaces
    from sweep.studies.grid import grid_points

    shared = json.loads(config({}, 0).model_dump_json(exclude={"hyperparameters", "seed"}))
    known = recorded()
    differing = differing_settings(known["config"], shared)
    found: Runs = {} if differing else known["runs"]
    if differing and known["runs"]:
        print(f"{RECORDED.name} was made with other settings and is begun anew: {'; '.join(differing)}", flush=True)
    tasks = [
        (point, seed)
        for seed in SEEDS
        for point in grid_points(search_spaces.space("sovr"))
        if str(seed) not in found.get(key(point), {})
    ]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for number, (name, seed, run) in enumerate(pool.imap_unordered(train_point, tasks), 1):
            found.setdefault(name, {})[str(seed)] = run
            RECORDED.parent.mkdir(exist_ok=True)
            RECORDED.write_text(encoded({"config": shared, "runs": found}))
            print(f"{number} of {len(tasks)}: M, lambda = {name}, seed {seed}", flush=True)


def differing_settings(before: Any, now: Any, path: str = "") -> list[str]:
    """Every setting in which two configurations differ, as `recipe.learning_rate 0.1 -> 0.2`."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = [*before, *(name for name in now if name not in before)]
        parts = [
            differing_settings(before.get(name), now.get(name), f"{path}.{name}" if path else name) for name in names
        ]
        return [one for part in parts for one in part]
    return [] if before == now else [f"{path} {json.dumps(before)} -> {json.dumps(now)}"]


def encoded(content: dict[str, Any]) -> str:
    """A line for each training."""
    runs = [
        f"{json.dumps(point)}: {{"
        + ",\n".join(f"{json.dumps(seed)}: {json.dumps(run, sort_keys=True)}" for seed, run in sorted(seeds.items()))
        + "}"
        for point, seeds in sorted(content["runs"].items())
    ]
    return f'{{"config": {json.dumps(content["config"], sort_keys=True)},\n"runs": {{\n' + ",\n".join(runs) + "\n}}\n"


def correlation_lines() -> list[str]:
    """Spearman's rank correlation of each objective with AutoAttack, over the points that are recorded."""
    content = recorded()
    runs: Runs = content["runs"]
    if not runs:
        return ["AutoAttack: nothing is recorded; --record trains the grid"]
    epochs = content["config"]["recipe"]["epochs"]
    made = f"{sum(map(len, runs.values()))} trainings of {len(runs)} points, {epochs} epochs"
    found = correlations(runs)
    lines = [
        f"rank correlation with AutoAttack on test images, {name}: {one['correlation']:.2f}, "
        f"95 % {one['low']:.2f} to {one['high']:.2f}"
        for name, one in found.items()
    ]
    return [*lines, f"({made}; percentiles of {DRAWS} draws of points)"]


def correlations(runs: Runs) -> dict[str, dict[str, float]]:
    """By objective, and of the margin less PGD: the best of each curve, as a search takes it, against AutoAttack.

    Whole points are drawn for the interval: trainings of one point are no independent witnesses.
    """
    import numpy as np
    from scipy.stats import rankdata

    points = [
        [[*(_best(run[name]) for name in OBJECTIVES), run["autoattack"]["test"]] for run in seeds.values()]
        for seeds in runs.values()
    ]

    def values(drawn: list[int]) -> list[float]:
        ranks = np.array([rankdata(column) for column in np.array([row for one in drawn for row in points[one]]).T])
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.corrcoef(ranks)[-1, :-1]
        return [*found, found[0] - found[1]]

    random = np.random.default_rng(0)
    draws = np.array([values(list(random.integers(len(points), size=len(points)))) for _ in range(DRAWS)])
    low, high = np.nanpercentile(draws, [2.5, 97.5], axis=0)
    names = (*OBJECTIVES, "margin less pgd")
    return {
        name: {"correlation": float(value), "low": float(least), "high": float(most)}
        for name, value, least, most in zip(names, values(list(range(len(points)))), low, high, strict=True)
    }


def _best(curve: list[float | None]) -> float:
    return max(value for value in curve if value is not None)
