"""How many epochs a search needs to find what the whole (M, lambda) grid of `digits` finds.

    python -m benchmarks.search_efficiency            # ten searches on the recorded grid, seconds
    python -m benchmarks.search_efficiency --record   # trains the grid anew, hours of one core; goes on where it was

A recorded file holds the held-out accuracies of real trainings, every epoch, for each point of the paper's grid
(M = 20, 40, ..., 100 by lambda = 0.2, ..., 1.0) and three training seeds. The grid is the table of mean curves; what a
search chooses in it is compared with the grid's best, in units of the standard error of such a mean.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORDED = HERE / "recorded" / "digits_grid.json"
RESULTS = HERE / "results" / "search_efficiency.json"
SEARCHES = 10
CANDIDATES = 12
LIMIT = 1 / 3
TRAINING_SEEDS = (1000, 1001, 1002)


def space() -> dict[str, Any]:
    from optuna.distributions import FloatDistribution, IntDistribution

    return {"M": IntDistribution(20, 100, step=20), "lam": FloatDistribution(0.2, 1.0, step=0.2)}


def key(values: dict[str, Any]) -> str:
    return f"{values['M']:g} {values['lam']:g}"


def train_point(task: tuple[dict[str, Any], int]) -> tuple[str, int, list[float]]:
    import torch

    from sweep.study import Study
    from trainers.train import train

    values, seed = task
    torch.set_num_threads(1)
    config = Study.load("digits").search_config("sovr", values).model_copy(update={"seed": seed})
    with tempfile.TemporaryDirectory() as folder:
        outcome = train(config, folder=Path(folder))
    return key(values), seed, [row["validation_pgd_accuracy"] for row in outcome["curve"]]


def base_config() -> dict[str, Any]:
    """What all points share: the study's search as it is now."""
    from sweep.study import Study

    config = Study.load("digits").search_config("sovr", {})
    found: dict[str, Any] = json.loads(config.model_dump_json(exclude={"hyperparameters", "seed"}))
    return found


def record(processes: int) -> None:
    from sweep.sampling import grid_points

    config = base_config()
    known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    # What was recorded with other settings cannot stand beside what is trained now.
    found: dict[str, dict[str, list[float]]] = known["curves"] if known.get("config") == config else {}
    tasks = [
        (point, seed)
        for seed in TRAINING_SEEDS
        for point in grid_points(space())
        if str(seed) not in found.get(key(point), {})
    ]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for number, (name, seed, curve) in enumerate(pool.imap_unordered(train_point, tasks), 1):
            found.setdefault(name, {})[str(seed)] = curve
            RECORDED.parent.mkdir(exist_ok=True)
            RECORDED.write_text(json.dumps({"config": config, "curves": found}, sort_keys=True, indent=0) + "\n")
            print(f"{number} of {len(tasks)}: M, lambda = {name}, seed {seed}", flush=True)


def one_search(grid: dict[str, list[float]], number: int, folder: Path) -> tuple[str, int]:
    """The chosen point and the epochs that were trained to find it."""
    from sweep.search import Search, Settings

    settings = Settings(
        id=f"search-{number}",
        label="sovr",
        method="sovr",
        space=space(),
        paper_value={"M": 40, "lam": 0.4},
        epochs=len(next(iter(grid.values()))),
        candidates=CANDIDATES,
        seed=number,
    )
    search = Search(settings, key, folder / f"{number}.log")
    while not search.finished:
        search.advance()
        for candidate in search.open():
            search.tell(candidate, "done", [{"validation_pgd_accuracy": value} for value in grid[candidate.trial]])
    winner, _ = search.chosen()
    assert winner is not None
    return winner.trial, sum(candidate.epochs for candidate in search.candidates)


def evaluate() -> dict[str, Any]:
    curves = json.loads(RECORDED.read_text())["curves"]
    grid = {
        name: [statistics.fmean(row) for row in zip(*seeds.values(), strict=True)] for name, seeds in curves.items()
    }
    value = {name: max(curve) for name, curve in grid.items()}
    top = max(value, key=lambda name: value[name])
    # Pooled over the grid: three seeds of one point say little about their spread.
    spread = math.sqrt(statistics.fmean(statistics.variance(map(max, seeds.values())) for seeds in curves.values()))
    whole = sum(map(len, grid.values()))
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        found = [one_search(grid, number, Path(folder)) for number in range(SEARCHES)]
    return {
        "grid_points": len(grid),
        "grid_epochs": whole,
        "grid_best": {"point": top, "mean": value[top], "standard_error": spread / math.sqrt(len(TRAINING_SEEDS))},
        "chosen": [{"point": name, "mean": value[name], "epochs": epochs} for name, epochs in found],
        "median_regret": statistics.median(value[top] - value[name] for name, _ in found),
        "median_share_of_epochs": statistics.median(epochs / whole for _, epochs in found),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.record:
        record(options.processes)
    if not RECORDED.exists():
        print(f"nothing is recorded in {RECORDED}; run with --record first")
        return 2
    measured = evaluate()
    kept = measured["median_regret"] <= measured["grid_best"]["standard_error"]
    kept = kept and measured["median_share_of_epochs"] <= LIMIT
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"measured": measured, "kept": kept}, indent=1) + "\n")
    top = measured["grid_best"]
    print(f"grid: best {top['mean']:.4f} at M, lambda = {top['point']}, standard error {top['standard_error']:.4f}")
    print(f"search: median regret {measured['median_regret']:.4f}, with {measured['median_share_of_epochs']:.1%} of")
    print(f"the grid's {measured['grid_epochs']} epochs (limit 33.3 %): {'kept' if kept else 'missed'}")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
