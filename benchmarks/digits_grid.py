"""The (M, lambda) grid of SOVR on `digits`, with held-out curves and AutoAttack accuracies of every point.

Each point is trained as a candidate of the study's search. The full AutoAttack runs on its best epoch with all test
images. `recorded/digits_autoattack.json` contains the settings of its trainings. If the settings have changed, the
record is overwritten, never mixed.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded" / "digits_autoattack.json"
SEEDS = (1000, 1001)
MEASURED = ("margin", "pgd", "clean")  # in every measured epoch, as in a search
OBJECTIVES = (*MEASURED, "quick")  # `quick` only at the best epoch: in every epoch it would cost more than training
DRAWS = 2000  # bootstrap samples
RECORD_HELP = (
    "train the missing points of the recorded grid; if the study's settings differ from the record, train the whole "
    "grid again, and overwrite the record"
)

Run = dict[str, Any]  # a curve per objective, and AutoAttack's accuracies
Runs = dict[str, dict[str, Run]]  # by point and seed


def key(values: dict[str, Any]) -> str:
    return f"{values['M']:g} {values['lam']:g}"


def config(values: dict[str, Any], seed: int) -> Any:
    from sweep.studies.model import Study

    return Study.load("digits", methods=["sovr"]).search_config("sovr", values, seed)


def train_point(task: tuple[dict[str, Any], int]) -> tuple[str, int, Run]:
    """Train and attack one point with one seed; return its key, the seed and the run."""
    import torch
    from safetensors.torch import load_file

    from trainers import assembly
    from trainers.loop.train import train

    values, seed = task
    torch.set_num_threads(1)
    trial = config(values, seed)
    with tempfile.TemporaryDirectory() as folder:
        outcome = train(trial, folder=Path(folder))
        weights = load_file(Path(folder) / f"{trial.selection.headline}.safetensors")
    model = assembly.build_model(trial)
    model.load_state_dict(weights)
    measured = {name: [row.get(f"validation_{name}_accuracy") for row in outcome["curve"]] for name in MEASURED}
    curves = {
        name: [None if accuracy is None else round(accuracy, 4) for accuracy in curve]
        for name, curve in measured.items()
    }
    attacked = {**curves, "quick": [attacked_accuracy(model, trial, "quick", seed, held_out=True)]}
    return key(values), seed, {**attacked, "autoattack": {"test": attacked_accuracy(model, trial, "autoattack")}}


def attacked_accuracy(model: Any, trial: Any, name: str, seed: int = 0, *, held_out: bool = False) -> float:
    """Return the accuracy in [0, 1] under an attack, on test images or, if asked, on held-out images."""
    import torch

    from sweep.studies.model import Study
    from trainers import assembly
    from trainers.attack import AttackSettings
    from trainers.attacks.scoring import scorer, suites

    evaluation = Study.load("digits").evaluation
    data = assembly.prepare_data(trial, None, None, torch.device("cpu"))
    settings = AttackSettings(
        epsilon=evaluation.epsilon, classes=data.classes, batch_size=evaluation.batch_size, seed=seed
    )
    (attack,) = suites.attacks((name,), settings)
    images, labels = data.test_images, data.test_labels
    if held_out:
        assert data.validation_images is not None and data.validation_labels is not None
        images, labels = data.validation_images, data.validation_labels
    result = scorer.evaluate_attack(scorer.ready(model, "cpu"), images, labels, attack)
    return round(float(result.correct.float().mean()), 4)


def recorded() -> dict[str, Any]:
    """Return the recorded settings, which all points share, and runs; both are empty without a record."""
    return json.loads(RECORDED.read_text()) if RECORDED.exists() else {"config": {}, "runs": {}}


def record(processes: int) -> None:
    """Train the missing points of the grid, seed by seed, and save the record after each training."""
    import search_spaces
    from sweep.studies.grid import grid_points

    shared = json.loads(config({}, 0).model_dump_json(exclude={"hyperparameters", "seed"}))
    previous = recorded()
    differing = differing_settings(previous["config"], shared)
    runs: Runs = {} if differing else previous["runs"]
    if differing and previous["runs"]:
        print(f"{RECORDED.name} has other settings and is replaced: {'; '.join(differing)}", flush=True)
    tasks = [
        (point, seed)
        for seed in SEEDS
        for point in grid_points(search_spaces.space("sovr"))
        if str(seed) not in runs.get(key(point), {})
    ]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for number, (name, seed, run) in enumerate(pool.imap_unordered(train_point, tasks), 1):
            runs.setdefault(name, {})[str(seed)] = run
            RECORDED.parent.mkdir(exist_ok=True)
            RECORDED.write_text(encoded({"config": shared, "runs": runs}))
            print(f"{number} of {len(tasks)}: M, lambda = {name}, seed {seed}", flush=True)


def differing_settings(before: Any, now: Any, path: str = "") -> list[str]:
    """Return every difference between two configurations, as `recipe.learning_rate 0.1 -> 0.2`."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = [*before, *(name for name in now if name not in before)]
        parts = [
            differing_settings(before.get(name), now.get(name), f"{path}.{name}" if path else name) for name in names
        ]
        return [difference for part in parts for difference in part]
    return [] if before == now else [f"{path} {json.dumps(before)} -> {json.dumps(now)}"]


def encoded(content: dict[str, Any]) -> str:
    """Return the record as JSON with one line per training."""
    runs = [
        f"{json.dumps(point)}: {{"
        + ",\n".join(f"{json.dumps(seed)}: {json.dumps(run, sort_keys=True)}" for seed, run in sorted(seeds.items()))
        + "}"
        for point, seeds in sorted(content["runs"].items())
    ]
    return f'{{"config": {json.dumps(content["config"], sort_keys=True)},\n"runs": {{\n' + ",\n".join(runs) + "\n}}\n"


def correlation_lines() -> list[str]:
    """Return lines with Spearman's correlation of each objective with AutoAttack over the recorded points."""
    content = recorded()
    runs: Runs = content["runs"]
    if not runs:
        return ["AutoAttack: no recorded grid; --record trains it"]
    epochs = content["config"]["recipe"]["epochs"]
    made = f"{sum(map(len, runs.values()))} trainings of {len(runs)} points, {epochs} epochs"
    lines = [
        f"rank correlation with AutoAttack on test images, {name}: {row['correlation']:.2f}, "
        f"95 % {row['low']:.2f} to {row['high']:.2f}"
        for name, row in correlations(runs).items()
    ]
    return [*lines, f"({made}; percentiles of {DRAWS} draws of points)"]


def correlations(runs: Runs) -> dict[str, dict[str, float]]:
    """Return the correlation with AutoAttack and its 95 % interval, by objective and for margin minus PGD.

    The value of a curve is its best epoch, as in a search. The interval draws whole points, because trainings of the
    same point are not independent.
    """
    import numpy as np
    from scipy.stats import rankdata

    points = [
        [[*(_best(run[name]) for name in OBJECTIVES), run["autoattack"]["test"]] for run in seeds.values()]
        for seeds in runs.values()
    ]

    def values(drawn: list[int]) -> list[float]:
        ranks = np.array([rankdata(column) for column in np.array([row for index in drawn for row in points[index]]).T])
        with np.errstate(invalid="ignore", divide="ignore"):
            by_objective = np.corrcoef(ranks)[-1, :-1]
        return [*by_objective, by_objective[0] - by_objective[1]]

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
