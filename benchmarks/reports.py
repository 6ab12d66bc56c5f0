"""How fast reports are: a large store's tables and tests, and the whole report of a small study.

    python -m benchmarks.reports [--records 100000] [--store FOLDER]

100,000 records are 10,000 trainings of 200 epochs and 90,000 evaluations on 10,000 images, in 20 studies of 10 methods
with 50 seeds: 1.5 GB on disk. Times are taken in a process of its own, its imports included.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from sweep.store.records import Checkpoint, EvaluationRecord, Manifest, PlannedCell, Record, TrialRecord, pack
from trainers.config import TrialConfig

SECONDS, MEGABYTES, SMALL_SECONDS = 10.0, 1024.0, 30.0
IMAGES, EPOCHS, SEEDS = 10_000, 200, 50
METHODS = ("at", "mart", "mma", "gairat", "mail", "ewat", "sovr", "trades", "tsovr", "mine")
ATTACKS = (
    *(("clean", "0"), ("pgd-20", "8/255"), ("autoattack", "8/255"), ("fgsm", "8/255"), ("pgd-100", "8/255")),
    *(("cw-100", "8/255"), ("spsa", "8/255"), ("autoattack", "12/255"), ("autoattack", "16/255")),
)
PHASES = ("clean", "apgd-ce", "apgd-t", "fab-t", "square")


def fill(root: Path, records: int) -> int:
    """Write so many records straight into a folder; the store's own fsync would take an hour."""
    draws = np.random.default_rng(0)
    # Drawn from pools: a fresh draw for every record would take longer than all the rest.
    curves = [_curve(draws) for _ in range(16)]
    pools = [[_verdicts(draws, place) for _ in range(300)] for place in range(len(METHODS))]
    per_study = len(METHODS) * SEEDS * (1 + len(ATTACKS))
    written = 0
    for number in range(max(1, round(records / per_study))):
        study = f"study_{number:03d}"
        cells = []
        for place, method in enumerate(METHODS):
            for seed in range(SEEDS):
                trial = hashlib.sha256(f"{study} {method} {seed}".encode()).hexdigest()
                cells.append(PlannedCell(label=method, display=method.upper(), method=method, seed=seed, trial=trial))
                written += _write_trial(root, trial, method, seed, pools[place], curves, draws)
        _write(root, _manifest(study, cells))
    return written


def _curve(draws: np.random.Generator) -> list[dict[str, float]]:
    rows = draws.random((EPOCHS, len(CURVE)))
    return [dict(zip(CURVE, map(float, row), strict=True)) for row in rows]


def _verdicts(draws: np.random.Generator, place: int) -> tuple[str, float]:
    robust = draws.random(IMAGES) < 0.5 + 0.002 * place
    return pack(robust), float(robust.mean())


def _write_trial(
    root: Path,
    trial: str,
    method: str,
    seed: int,
    pool: list[tuple[str, float]],
    curves: list[list[dict[str, float]]],
    draws: np.random.Generator,
) -> int:
    config = TrialConfig(dataset="cifar10", model="preact_resnet18", method=method, seed=seed)
    kept = {"best_test": Checkpoint(epoch=1, sha256="0" * 64)}
    curve = tuple(curves[draws.integers(len(curves))])
    _write(root, TrialRecord(trial=trial, config=config, status="done", curve=curve, checkpoints=kept))
    clean, _ = pool[draws.integers(len(pool))]
    for name, epsilon in ATTACKS:
        text, accuracy = pool[draws.integers(len(pool))]
        phases = {phase: pool[draws.integers(len(pool))][0] for phase in PHASES} if name == "autoattack" else {}
        record = EvaluationRecord(
            trial=trial,
            checkpoint="best_test",
            attack={"name": name, "kind": name, "epsilon": epsilon},
            images=IMAGES,
            verdicts=text,
            clean=clean,
            phases=phases,
            accuracy=accuracy,
        )
        _write(root, record)
    return 1 + len(ATTACKS)


CURVE = (
    *("epoch", "learning_rate", "train_loss", "train_accuracy", "test_clean_accuracy", "test_pgd_accuracy"),
    *("train_margin", "seconds"),
)


def _manifest(study: str, cells: list[PlannedCell]) -> Manifest:
    return Manifest(
        name=study,
        title=study,
        dataset="cifar10",
        model="preact_resnet18",
        checkpoint="best_test",
        seeds=tuple(range(SEEDS)),
        cells=tuple(cells),
    )


def _write(root: Path, record: Record) -> None:
    path = root / record.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(record.encoded())


MEASURED = """
import resource, sys, time
start = time.perf_counter()
from reports import write_reports
write_reports(sys.argv[1], None, sys.argv[2], figures=sys.argv[3] == "figures")
assert not {"torch", "ray"} & set(sys.modules), "the reports loaded torch or ray"
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
processor = sum(one.ru_utime + one.ru_stime for one in used)
print(time.perf_counter() - start, processor, sum(one.ru_maxrss for one in used) / 1024)
"""


def measure(store: Path, out: Path, figures: bool) -> tuple[float, float, float]:
    """Seconds, processor seconds and megabytes of one report, its second process included."""
    command = [sys.executable, "-c", MEASURED, str(store), str(out), "figures" if figures else "tables"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, processor, megabytes = map(float, printed.split()[-3:])
    return seconds, processor, megabytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--store", type=Path, help="a store to report with figures, e.g. that of the digits study")
    arguments = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        start = time.perf_counter()
        records = fill(root / "store", arguments.records)
        os.sync()  # what is still on its way to the disk would slow down the reader
        print(f"wrote {records:,} records in {time.perf_counter() - start:.0f} s")
        seconds, processor, megabytes = measure(root / "store", root / "out", figures=False)
        good = seconds <= SECONDS and megabytes <= MEGABYTES
        print(f"all tables and tests: {seconds:.1f} s of {SECONDS:.0f}, {megabytes:.0f} MB of {MEGABYTES:.0f}")
        print(f"(processor time {processor:.1f} s; on a busy machine the first number is the machine's, not ours)")
        failures += not good
        if arguments.store:
            seconds, _, _ = measure(arguments.store.absolute(), root / "small", figures=True)
            good = seconds <= SMALL_SECONDS
            print(f"report with all figures: {seconds:.1f} s of {SMALL_SECONDS:.0f}")
            failures += not good
    print(json.dumps({"records": records, "within_limits": not failures}))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
