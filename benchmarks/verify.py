"""Measure the disk space of counterexamples, and the speed of verification against evaluation, on CIFAR-10 images.

    python -m benchmarks.verify [--data-dir data] [--train-images 4000] [--epochs 6] [--images 128] [--norms linf l2]

Trains two small networks, attacks them with AutoAttack and PGD-20, and checks the store as `sweep.verify` does, with
one thread, in processor time and in one run. Disk space is measured per fooled image and reported for 10,000 images,
the most that a CIFAR test set can have. The ratio is the time of the AutoAttack evaluations over that of checking all
evaluations, including reading the weights. The data set is in memory for both.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks import _in_process
from sweep.errors import UserError
from sweep.evaluation.verifying import verified
from sweep.store.base import Store
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.studies.model import Study
from trainers.attacks.scoring.counterexample_file import EXACT, SIGNS, decoded

MOST_MEGABYTES, LEAST_RATIO = 10.0, 200.0
WHOLE = 10_000
RADII = {"linf": "8/255", "l2": "128/255", "l1": "12"}
RESULTS = Path(__file__).parent / "results" / "verify.json"


def study(folder: Path, options: argparse.Namespace) -> Study:
    """Return a study of two small networks, written into `folder`."""
    attack = {"epsilon": "8/255", "step_size": "2/255", "steps": 5}
    attacks = [
        "clean",
        *(f"{name}@{norm}:{RADII[norm]}" for norm in options.norms for name in ("autoattack", "pgd-20")),
    ]
    content = {
        "title": "CIFAR-10, a small network",
        "dataset": "cifar10",
        "model": options.model,
        "seeds": [0],
        "train_images": options.train_images,
        "test_images": options.images,
        "train": {
            **{"epochs": options.epochs, "batch_size": 128, "learning_rate": 0.05, "attack": attack},
            "schedule": {"kind": "constant"},
        },
        "selection": {"protocol": "paper", "from_epoch": options.epochs, **attack},
        "methods": {"at": {}, "st": {}},
        "evaluation": {"attacks": attacks, "images": options.images},
    }
    path = folder / "proof.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return Study.load(path)


def disk_rows(store: Store) -> list[dict[str, Any]]:
    """Return the disk space of counterexamples by attack and norm, over all models."""
    records_by_attack: dict[tuple[str, str], list[EvaluationRecord]] = {}
    for record in store.records(EvaluationRecord, store.record_paths(EvaluationRecord)):
        if record.counterexamples is not None:
            records_by_attack.setdefault((record.attack["name"], record.attack["norm"]), []).append(record)
    rows = []
    for (name, norm), records in records_by_attack.items():
        size = sum(record.counterexamples.bytes for record in records if record.counterexamples)
        arrays = [decoded(store.read(record.counterexamples_path), record.images) for record in records]
        count = sum(map(len, arrays))
        forms = {
            "signs": sum(int((array.levels == SIGNS).sum()) for array in arrays),
            "multiples": sum(int((array.levels > SIGNS).sum()) for array in arrays),
            "exact": sum(int((array.levels == EXACT).sum()) for array in arrays),
        }
        megabytes = WHOLE * size / max(1, count) / 1e6
        what = f"{name} {norm}: MB for {WHOLE:,} fooled images"
        rows.append({"what": what, "megabytes": megabytes, "fooled": count, "bytes": size, **forms})
    return rows


def verify_row(store: Store, seconds: dict[str, float], data_dir: str) -> dict[str, Any]:
    """Check all evaluations, and return the times; `seconds` are those of the evaluations by record path."""
    paths = store.record_paths(EvaluationRecord)
    started = time.process_time()
    proofs = [proof for _, proofs in verified(store, {"all": paths}, data_dir, "cpu", _raise) for proof in proofs]
    checked = time.process_time() - started
    attacked = {path: spent for path, spent in seconds.items() if "/autoattack-" in path}
    wrong = [proof.line() for proof in proofs if proof.status != "confirmed"]
    return {
        "what": f"{len(attacked)} AutoAttack evaluations against the check of {len(proofs)} evaluations",
        "evaluation_seconds": sum(attacked.values()),
        "verify_seconds": checked,
        "ratio": sum(attacked.values()) / checked,
        "counterexamples": sum(proof.confirmed for proof in proofs),
        "not_confirmed": wrong,
    }


def _raise(fault: Exception) -> None:
    raise fault


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--model", default="small_cnn")
    parser.add_argument("--train-images", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--norms", nargs="+", choices=RADII, default=["linf"])
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store")
        try:
            seconds = _in_process.run(study(Path(folder), options), store, options.data_dir)
        except UserError as fault:
            parser.error(str(fault))
        disk, row = disk_rows(store), verify_row(store, seconds, options.data_dir)
    for attack in disk:
        verdict = "ok" if attack["megabytes"] <= MOST_MEGABYTES else "MISSED"
        forms = ", ".join(f"{attack[name]} {name}" for name in ("signs", "multiples", "exact") if attack[name])
        print(f"{attack['what']:<52}{attack['megabytes']:8.2f}  {verdict}, at most {MOST_MEGABYTES:g} ({forms})")
    verdict = "ok" if row["ratio"] >= LEAST_RATIO and not row["not_confirmed"] else "MISSED"
    times = f"{row['evaluation_seconds']:.1f} s and {row['verify_seconds']:.3f} s"
    print(f"{row['what']}: {times}, ratio {row['ratio']:.0f}  {verdict}, at least {LEAST_RATIO:g}")
    for line in row["not_confirmed"]:
        print(f"  not confirmed: {line}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"disk": disk, "verify": row}, indent=2) + "\n", encoding="utf-8")
    return 0 if verdict == "ok" and all(attack["megabytes"] <= MOST_MEGABYTES for attack in disk) else 1


if __name__ == "__main__":
    raise SystemExit(main())
