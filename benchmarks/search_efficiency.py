"""How many epochs a search needs to find what the whole (M, lambda) grid of `digits` finds.

    python -m benchmarks.search_efficiency            # ten searches on the recorded grid, seconds
    python -m benchmarks.search_efficiency --record   # trains the grid, or what is missing of it

A recorded file holds the held-out accuracies of real trainings, every epoch, for each point of the paper's grid
(M = 20, 40, ..., 100 by lambda = 0.2, ..., 1.0) and three training seeds. Ten searches look up what they would have
trained; the value of what each chose is compared with the best of the whole grid, in units of the standard error of a
value. Once a value is one training, as in a real search, the seed changing from search to search; once it is the mean
of three.
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

    from sweep.studies.model import Study
    from trainers.train import train

    values, seed = task
    torch.set_num_threads(1)
    config = Study.load("digits").search_config("sovr", values).model_copy(update={"seed": seed})
    with tempfile.TemporaryDirectory() as folder:
        outcome = train(config, folder=Path(folder))
    return key(values), seed, [row["validation_pgd_accuracy"] for row in outcome["curve"]]


def base_config() -> dict[str, Any]:
    """What all points share: the study's search as it is now."""
    from sweep.studies.model import Study

    config = Study.load("digits").search_config("sovr", {})
    found: dict[str, Any] = json.loads(config.model_dump_json(exclude={"hyperparameters", "seed"}))
    return found


def record(processes: int) -> None:
    from sweep.search.sampling import grid_points

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
    from sweep.search.search import Search, SearchSettings

    settings = SearchSettings(
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


Grid = dict[str, list[float]]  # a point's curve


def mean_grid(curves: dict[str, dict[str, list[float]]]) -> Grid:
    return {
        name: [statistics.fmean(row) for row in zip(*seeds.values(), strict=True)] for name, seeds in curves.items()
    }


def ten_searches(grids: list[Grid], standard_error: float) -> dict[str, Any]:
    """Search number n plays on grid n, n + len(grids), ...; each is compared with the best of its own grid."""
    memory = Path("/dev/shm")
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        for number in range(SEARCHES):
            grid = grids[number % len(grids)]
            chosen, epochs = one_search(grid, number, Path(folder))
            value = {name: max(curve) for name, curve in grid.items()}
            top = max(value, key=lambda name: value[name])
            facts = {"grid_best": top, "best_value": value[top], "chosen": chosen, "chosen_value": value[chosen]}
            found.append({**facts, "epochs": epochs, "share_of_epochs": epochs / sum(map(len, grid.values()))})
    regret = statistics.median(row["best_value"] - row["chosen_value"] for row in found)
    share = statistics.median(row["share_of_epochs"] for row in found)
    return {
        "standard_error": standard_error,
        "median_regret": regret,
        "median_share_of_epochs": share,
        "kept": regret <= standard_error and share <= LIMIT,
        "searches": found,
    }


def evaluate() -> dict[str, dict[str, Any]]:
    curves = json.loads(RECORDED.read_text())["curves"]
    # Pooled over the grid: three seeds of one point say little about their spread.
    spread = math.sqrt(statistics.fmean(statistics.variance(map(max, seeds.values())) for seeds in curves.values()))
    single = [{name: seeds[str(seed)] for name, seeds in curves.items()} for seed in TRAINING_SEEDS]
    return {
        "one training per point": ten_searches(single, spread),
        "mean of three trainings per point": ten_searches([mean_grid(curves)], spread / math.sqrt(len(TRAINING_SEEDS))),
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
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(measured, indent=1) + "\n")
    for what, row in measured.items():
        print(f"{what}: median regret {row['median_regret']:.4f}, standard error {row['standard_error']:.4f},", end=" ")
        print(f"{row['median_share_of_epochs']:.1%} of the grid's epochs (limit 33.3 %):", end=" ")
        print("kept" if row["kept"] else "missed")
    return 0 if all(row["kept"] for row in measured.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
