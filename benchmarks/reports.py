"""Measure the speed of reports: tables and tests of a large store, read first and again, and a small study's report.

    python -m benchmarks.reports [--records 100000] [--store FOLDER]

100,000 records are 10,000 trainings of 200 epochs and 90,000 evaluations on 10,000 images, in 20 studies of 10 methods
with 50 seeds: 1.5 GB on disk. Each measurement runs in its own process and starts after the imports.
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

from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.manifest import Manifest, PlannedCell
from sweep.store.records.record import Record
from sweep.store.records.trial import Checkpoint, TrialRecord
from sweep.store.verdicts import pack
from trainers.config import TrialConfig

FIRST_SECONDS, LATER_SECONDS, TABLES_SECONDS, SMALL_SECONDS = 30.0, 3.0, 10.0, 30.0
MEGABYTES = 1024.0
IMAGES, EPOCHS, SEEDS = 10_000, 200, 50
METHODS = ("at", "mart", "mma", "gairat", "mail", "ewat", "sovr", "trades", "tsovr", "mine")
ATTACKS = (
    *(("clean", "0"), ("pgd-20", "8/255"), ("autoattack", "8/255"), ("fgsm", "8/255"), ("pgd-100", "8/255")),
    *(("cw-100", "8/255"), ("spsa", "8/255"), ("autoattack", "12/255"), ("autoattack", "16/255")),
)
PHASES = ("clean", "apgd-ce", "apgd-t", "fab-t", "square")


def fill(root: Path, records: int) -> int:
    """Write about this many records directly into a folder, and return their number.

    The store's own fsync would take an hour.
    """
    draws = np.random.default_rng(0)
    # Records draw from pools, because fresh random numbers for each would take longer than everything else.
    curves = [_curve(draws) for _ in range(16)]
    pools = [[_verdicts(draws, index) for _ in range(300)] for index in range(len(METHODS))]
    per_study = len(METHODS) * SEEDS * (1 + len(ATTACKS))
    written = 0
    for number in range(max(1, round(records / per_study))):
        study = f"study_{number:03d}"
        cells = []
        for index, method in enumerate(METHODS):
            for seed in range(SEEDS):
                trial = hashlib.sha256(f"{study} {method} {seed}".encode()).hexdigest()
                cells.append(PlannedCell(label=method, display=method.upper(), method=method, seed=seed, trial=trial))
                written += _write_trial(root, trial, method, seed, pools[index], curves, draws)
        _write(root, _manifest(study, cells))
    return written


def _curve(draws: np.random.Generator) -> list[dict[str, float]]:
    rows = draws.random((EPOCHS, len(CURVE)))
    return [dict(zip(CURVE, map(float, row), strict=True)) for row in rows]


def _verdicts(draws: np.random.Generator, index: int) -> tuple[str, float]:
    robust = draws.random(IMAGES) < 0.5 + 0.002 * index
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
    checkpoints = {"best_test": Checkpoint(epoch=1, sha256="0" * 64)}
    curve = tuple(curves[draws.integers(len(curves))])
    _write(root, TrialRecord(trial=trial, config=config, status="done", curve=curve, checkpoints=checkpoints))
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
        inner_attacks={method: {"trains_on": "attacked"} for method in METHODS},
        displays={"dataset": "CIFAR10", "model": "PreActResNet-18"},
    )


def _write(root: Path, record: Record) -> None:
    path = root / record.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(record.encoded())


MEASURED = """
import resource, sys, time
from pathlib import Path
from reports.store.load import load
from reports.writing import CACHE, write
store, out = sys.argv[1], Path(sys.argv[2])
start = time.perf_counter()
{work}
assert not {{"torch", "ray"}} & set(sys.modules), "the reports loaded torch or ray"
used = resource.getrusage(resource.RUSAGE_SELF)
print(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""
READ = "load(store, None, out / CACHE)"
WRITE = "write(store, None, out, figures={figures})"


def is_within(title: str, limit: float, work: str, store: Path, out: Path) -> bool:
    """Run the work in a process of its own, print its time and memory, and return True if both are within limits.

    On a busy machine, processor seconds are more reliable than wall seconds.
    """
    command = [sys.executable, "-c", MEASURED.format(work=work), str(store), str(out)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds, processor, megabytes = map(float, printed.split()[-3:])
    print(
        f"{title}: {seconds:.1f} s of {limit:.0f} (processor {processor:.1f} s), {megabytes:.0f} MB of {MEGABYTES:.0f}"
    )
    return seconds <= limit and megabytes <= MEGABYTES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--store", type=Path, help="also report this store with figures, e.g. that of the digits study")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        start = time.perf_counter()
        records = fill(root / "store", arguments.records)
        os.sync()  # pending writes would slow down the reader
        print(f"wrote {records:,} records in {time.perf_counter() - start:.0f} s")
        paths = root / "store", root / "out"
        good = is_within("first read", FIRST_SECONDS, READ, *paths)
        good &= is_within("later read", LATER_SECONDS, READ, *paths)
        good &= is_within("all tables and tests", TABLES_SECONDS, WRITE.format(figures=False), *paths)
        if arguments.store:
            small = arguments.store.absolute(), root / "small"
            good &= is_within("report with all figures", SMALL_SECONDS, WRITE.format(figures=True), *small)
    print(json.dumps({"records": records, "within_limits": good}))
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
