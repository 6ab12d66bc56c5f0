"""Measure Ray Tune with our searcher and store at 100, 1,000 and 5,000 trials that do nothing.

    python -m benchmarks.tune_scale [--trials 100,1000,5000]

Each trial takes its lease, writes its record and returns, as every piece of a study does. For comparison, plain Ray
Tune runs as many functions that return at once, at its fastest: actors are reused, nothing is logged, and enough trials
wait. Each size runs in its own process. The start of the worker processes is not counted.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "tune_scale.json"
LIMITS = {"seconds_per_trial_at_most": 0.05, "growth_at_most": 1.5}


def nothing(config: Mapping[str, Any], setting: Any, report: Any, node: str) -> dict[str, Any]:
    """Do what every piece does besides its work: check the node, take the lease, look for a record, write one."""
    from sweep.store.numerics import NUMERICS_VERSION
    from sweep.store.records.trial import TrialRecord
    from sweep.work.pieces import piece_from, trial_metrics
    from sweep.work.worker import Worker

    with Worker(config, setting, report, node) as worker:
        assert worker.refusal() is None
        piece = piece_from(config)
        with worker.lease(piece.lease) as is_mine:
            assert is_mine and piece.stored(worker.store) is None
            record = TrialRecord(trial=piece.trial, config=piece.config, status="done", numerics=NUMERICS_VERSION)
            worker.store.write_record(record)
        return trial_metrics(record)


def ours(trials: int, folder: Path) -> float:
    from benchmarks._tune import swept
    from benchmarks.sweep_overhead import study

    return swept(study(folder, seeds=list(range(trials))), folder, nothing).seconds


def plain(trials: int, folder: Path) -> float:
    from ray import tune
    from ray.tune.search import Searcher

    from benchmarks._tune import FirstStart

    class Numbers(Searcher):
        def __init__(self) -> None:
            super().__init__()
            self.suggested = 0

        def suggest(self, trial_id: str) -> Any:
            if self.suggested == trials:
                return Searcher.FINISHED
            self.suggested += 1
            return {"number": self.suggested}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            pass

        def save(self, checkpoint_path: str) -> None:
            pass

        def restore(self, checkpoint_path: str) -> None:
            pass

    def function(config: dict[str, Any]) -> dict[str, Any]:
        return {"number": config["number"]}

    first = FirstStart()
    tune.Tuner(
        tune.with_resources(function, {"cpu": 1}),
        tune_config=tune.TuneConfig(search_alg=Numbers(), num_samples=-1, reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0, callbacks=[first]),
    ).fit()
    return first.seconds()


def one_size(trials: int) -> dict[str, float]:
    import ray

    from sweep.engine.tuner import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = "3"
    for name in ("ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="robustsweep-bench-") as name:
        folder = Path(name)
        (folder / "plain").mkdir()
        baseline = plain(trials, folder / "plain") / trials
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        own = ours(trials, folder) / trials
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ray.shutdown()
    return {"trials": trials, "ours": own, "plain": baseline, "driver_megabytes": after, "grown_by": after - before}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", default="100,1000,5000")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    if options.one:
        print(json.dumps(one_size(options.one)))
        return 0
    rows = []
    for trials in map(int, options.trials.split(",")):
        words = [sys.executable, "-m", "benchmarks.tune_scale", "--one", str(trials)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print({name: round(value, 4) for name, value in rows[-1].items()}, flush=True)
    growth = rows[-1]["ours"] / rows[0]["ours"]
    missed = [
        name
        for name, value in (
            ("seconds_per_trial_at_most", max(row["ours"] for row in rows)),
            ("growth_at_most", growth),
        )
        if value > LIMITS[name]
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"rows": rows, "growth": growth, "limits": LIMITS, "missed": missed}, indent=1) + "\n"
    )
    print(f"seconds per trial at {rows[-1]['trials']} against {rows[0]['trials']}: {growth:.2f} times")
    print(f"missed: {', '.join(missed)}" if missed else "all limits kept")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
