"""A store whose records have exactly the paper's printed means and spreads: three seeds at mean - s, mean, mean + s."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from hand_made import PAPER, QuickStore, cell, evaluation_record, manifest, trial_hash, trial_record

from reports.papers.paper import Printed
from sweep.store.base import Store

IMAGES = 10_000
NO_ATTACK = ("worst", "margin", "margin_ratio")
# The paper's own departures from its rule of rounding: a mean shown finer than its spread.
IRREGULAR = {"60.13±0.5", "40.01±1", "9.43±0.4", "10.45±0.5"}


def first_printed() -> dict[tuple[str, str, str, str | None], Printed]:
    """Each distinct cell with the first table that prints it."""
    cells: dict[tuple[str, str, str, str | None], Printed] = {}
    for printed in (printed for table in PAPER.tables for printed in table.cells()):
        key = printed.key
        cells.setdefault((key.study, printed.claim_label, key.measure, key.epsilon), printed)
    return cells


def write_papers_store(folder: Path) -> None:
    store = QuickStore(folder)
    studies: dict[str, dict[str, dict]] = defaultdict(lambda: defaultdict(dict))
    for (study, label, measure, epsilon), printed in first_printed().items():
        studies[study][label][measure, epsilon] = printed
    for study, labels in studies.items():
        cells = []
        if study.startswith("trajectories"):
            labels["at"] = {}
        for label, numbers in labels.items():
            used = next((dict(printed.key.hyperparameters) for printed in numbers.values()), {})
            for seed in range(3):
                trial = trial_hash(study, label, seed)
                cells.append(cell(label, seed, trial, used, method="sovr" if label.startswith("sovr_") else label))
                _write_trial(store, trial, numbers, seed)
        store.write_json(f"studies/{study}.json", manifest(study, cells, title=study))


def _write_trial(store: Store, trial: str, numbers: dict[tuple[str, str | None], Printed], seed: int) -> None:
    margin = -1.0
    for (measure, epsilon), printed in numbers.items():
        spread = printed.sample.std if printed.sample.spread_known else 0.0
        value = printed.sample.mean + (seed - 1) * spread
        if measure == "margin":
            margin = value
        elif measure == "margin_ratio":
            margin = -value  # AT's own margin is -1 in these studies
        elif measure not in NO_ATTACK:
            record = evaluation_record(trial, measure, value / 100, epsilon=epsilon or "0", images=IMAGES)
            name = f"{measure}-{(epsilon or '0').replace('/', '_')}"
            store.write_json(f"evaluations/{trial[:16]}/best_test/{name}.json", record)
    record = trial_record(trial, {}, curve=[{"epoch": 0, "train_margin": margin}])
    store.write_json(f"trials/{trial[:16]}/record.json", record)
