"""A store whose records have exactly the paper's printed means and spreads: three seeds at mean - s, mean, mean + s."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from hand_made import PAPER, QuickStore, add_evaluation, add_trial, trial_hash

from reports.papers.paper import Printed
from sweep.store.base import Store
from sweep.store.records.manifest import PlannedCell
from tests import records
from trainers.attacks import parse

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
            method = "sovr" if label.startswith("sovr_") else label
            for seed in range(3):
                trial = trial_hash(study, label, seed)
                cells.append(PlannedCell(label=label, method=method, hyperparameters=used, seed=seed, trial=trial))
                _write_trial(store, trial, numbers, seed)
        facts = {"seeds": (0, 1, 2), "attacks": (), "config_by_label": {}}
        store.write_record(records.manifest(study, title=study, cells=cells, **facts))


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
            attack = parse(measure, epsilon=epsilon) if epsilon else parse(measure)
            add_evaluation(store, trial, attack, value / 100, images=IMAGES)
    add_trial(store, trial, curve=({"epoch": 0, "train_margin": margin},))
