"""Measure how well each search objective ranks models of different methods, compared with AutoAttack.

    python -m benchmarks.objectives [--store store] [--study digits] [--data-dir data]

Every trained model of a study is measured on its held-out images as a search would measure it: clean, PGD and margin
accuracy of the weights that the tables use. AutoAttack's accuracy on test images is read from the store. Models with no
accuracy under AutoAttack are not ranked, since all objectives put them last. Intervals (95 %) draw methods with all
their models, because models of one method are not independent.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from reports.analysis.results import Results
from reports.tables.table import Key
from sweep.errors import UserError
from sweep.evaluation.checkpoints import trial_data, trial_model
from trainers import assembly
from trainers.measures.measurement import measured

OBJECTIVES = ("clean", "pgd", "margin")
DRAWS = 2000


@dataclass(frozen=True)
class MethodModels:
    """The models of one method: accuracies in percent, one row per model."""

    name: str
    objectives: np.ndarray
    autoattack: np.ndarray


def columns(store: str, study: str, data_dir: str) -> list[MethodModels]:
    """Measure the models of every column of the study."""
    results = Results.read(store, [study])
    searched = {planned.label for planned in results.data.manifests[study].searches}
    models = []
    for label, name in results.labels[study].items():
        cell = results.cell(Key(study, label, "autoattack"))
        if cell.sample is None or label in searched or results.from_outside(study, label):
            continue
        attacked = dict(zip(cell.seeds, cell.sample.values, strict=True))
        trials = {planned.seed: planned.trial for planned in results.seeds(study, label) if planned.seed in attacked}
        checkpoint = results.shown_checkpoint(study)
        rows = [objectives(store, trials[seed], checkpoint, data_dir) for seed in attacked]
        models.append(MethodModels(name, np.array(rows), np.array(list(attacked.values()))))
    return models


def objectives(store: str, trial: str, checkpoint: str, data_dir: str) -> list[float]:
    """Return the held-out accuracies in percent of a trial's checkpoint, in the order of OBJECTIVES."""
    cpu = torch.device("cpu")
    model, record = trial_model(store, trial, checkpoint, "cpu")
    selection = record.config.selection.model_copy(update={"margin": True})
    config = record.config.model_copy(update={"selection": selection})
    images = assembly.prepare_data(config, trial_data(record, data_dir), Path(data_dir), cpu)
    row = measured(model, images, config, epoch=0, epochs=1, device=cpu)  # the last epoch is always measured
    return [100 * row[f"validation_{name}_accuracy"] for name in OBJECTIVES]


def correlations(methods: list[MethodModels]) -> np.ndarray:
    """Return Spearman's correlation of each objective with AutoAttack."""
    from scipy.stats import rankdata

    rows = np.concatenate([np.column_stack([method.objectives, method.autoattack]) for method in methods])
    ranks = np.array([rankdata(column) for column in rows[rows[:, -1] > 0].T])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.corrcoef(ranks)[-1, :-1]


def lines(methods: list[MethodModels]) -> list[str]:
    """Return the report: means by method, and the rank correlations with their intervals."""
    table = ["| column | n | clean | PGD | margin | AutoAttack, test |", "|:--|--:|--:|--:|--:|--:|"]
    for method in sorted(methods, key=lambda method: -method.autoattack.mean()):
        means = " | ".join(f"{value:.1f}" for value in [*method.objectives.mean(0), method.autoattack.mean()])
        table.append(f"| {method.name} | {len(method.autoattack)} | {means} |")
    ranked = [method for method in methods if method.autoattack.any()]
    random = np.random.default_rng(0)
    drawn = [[ranked[index] for index in random.integers(len(ranked), size=len(ranked))] for _ in range(DRAWS)]
    draws = np.array([correlations(sample) for sample in drawn])
    values = [*correlations(ranked), correlations(ranked)[2] - correlations(ranked)[1]]
    spread = np.column_stack([draws, draws[:, 2] - draws[:, 1]])
    low, high = np.nanpercentile(spread, [2.5, 97.5], axis=0)
    models = sum(len(method.autoattack) for method in ranked)
    named = zip((*OBJECTIVES, "margin less pgd"), values, low, high, strict=True)
    return [
        *table,
        "",
        *(f"rank correlation with AutoAttack, {name}: {value:.2f} ({a:.2f} to {b:.2f})" for name, value, a, b in named),
        f"({models} models of {len(ranked)} methods)",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="store")
    parser.add_argument("--study", default="digits")
    parser.add_argument("--data-dir", default="data")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        methods = columns(options.store, options.study, options.data_dir)
    except UserError as fault:
        print(f"nothing to measure: {fault}; train `digits` with `python -m sweep.run`", file=sys.stderr)
        return 1
    print("\n".join(lines(methods)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
