"""The recorded (M, lambda) grid of SOVR on `digits`: real trainings, their held-out curves and AutoAttack's verdict.

A shortened recipe of its own, so that changes of the study leave the record as it is: 25 points of the paper's grid,
12 epochs with drops of the rate after 7 and 10; recorded are all of seed 1000 and three of seed 1001. AutoAttack is its
two first parts, APGD-CE and APGD-T, on the held-out images and the first test images: on the one model that was tried
the other parts changed no verdict.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded" / "digits_autoattack.json"
SEEDS = (1000, 1001)
ATTACKS = ("apgd-ce", "apgd-t")
TEST_IMAGES = 240
OBJECTIVES = ("margin", "pgd", "clean")
SETTINGS = (
    "train.epochs=12",
    "train.batch_size=64",
    "train.learning_rate=0.1",
    "train.schedule={kind: piecewise, at: [7, 10], factors: [0.1, 0.01]}",
    "train.attack={epsilon: 0.2, step_size: 0.08, steps: 5}",
    "selection={protocol: heldout, validation: 180, epsilon: 0.2, step_size: 0.05, steps: 10, images: 1, margin: true}",
    "margins=false",
)

Run = dict[str, Any]  # a curve for each objective, and AutoAttack's accuracy on both splits


def key(values: dict[str, Any]) -> str:
    return f"{values['M']:g} {values['lam']:g}"


def config(values: dict[str, Any], seed: int) -> Any:
    from sweep.studies.model import Study

    return Study.load("digits", SETTINGS, methods=["sovr"]).config("sovr", values, seed)


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
    curves = {name: [row[f"validation_{name}_accuracy"] for row in outcome["curve"]] for name in OBJECTIVES}
    return key(values), seed, {**curves, "autoattack": autoattack_accuracies(model, trial)}


def autoattack_accuracies(model: Any, trial: Any) -> dict[str, float]:
    """Of the epoch that the study's rule keeps, as the tables show it, on held-out and on test images."""
    import torch

    from trainers import assembly, evaluate, suites
    from trainers.attack import AttackSettings

    data = assembly.prepare_data(trial, None, None, torch.device("cpu"))
    model = evaluate.ready(model, "cpu")
    assert data.validation_images is not None and data.validation_labels is not None
    splits = {
        "validation": (data.validation_images, data.validation_labels),
        "test": (data.test_images[:TEST_IMAGES], data.test_labels[:TEST_IMAGES]),
    }
    found = {}
    for split, (images, labels) in splits.items():
        standing = torch.arange(len(images))
        for attack in suites.attacks(ATTACKS, AttackSettings(epsilon=trial.selection.epsilon, classes=10)):
            for phase in attack.phases:
                verdicts = evaluate.evaluate_phase(
                    model, images[standing], labels[standing], attack, phase, indices=standing
                )
                standing = standing[verdicts.correct]
        found[split] = len(standing) / len(images)
    return found


def record(processes: int) -> None:
    """Trains what is missing of the grid, seed by seed."""
    import search_spaces
    from sweep.search.sampling import grid_points

    shared = json.loads(config({}, 0).model_dump_json(exclude={"hyperparameters", "seed"}))
    known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    # What was recorded with other settings cannot stand beside what is trained now.
    found: dict[str, dict[str, Run]] = known["runs"] if known.get("config") == shared else {}
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
            RECORDED.write_text(json.dumps({"config": shared, "runs": found}, sort_keys=True, indent=0) + "\n")
            print(f"{number} of {len(tasks)}: M, lambda = {name}, seed {seed}", flush=True)


def correlation_lines() -> list[str]:
    """Spearman's rank correlation of each objective with AutoAttack, over the points that are recorded."""
    if not RECORDED.exists():
        return ["AutoAttack: nothing is recorded; --record trains the grid"]
    found: dict[str, dict[str, Run]] = json.loads(RECORDED.read_text())["runs"]
    return [
        f"rank correlation with AutoAttack on {split} images: "
        + ", ".join(f"{name} {value:.2f}" for name, value in correlations(found, split).items())
        + f" ({sum(map(len, found.values()))} trainings of {len(found)} points)"
        for split in ("validation", "test")
    ]


def correlations(found: dict[str, dict[str, Run]], split: str) -> dict[str, float]:
    """By objective: the best of each training's curve, as a search takes it, against AutoAttack of the kept epoch."""
    from scipy.stats import spearmanr

    trained = [run for seeds in found.values() for run in seeds.values()]
    truth = [run["autoattack"][split] for run in trained]
    return {name: float(spearmanr([max(run[name]) for run in trained], truth).statistic) for name in OBJECTIVES}
