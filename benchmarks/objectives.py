"""How well each objective of a search orders models of different methods, beside AutoAttack.

    python -m benchmarks.objectives [--store store] [--study digits] [--data-dir data]

Every trained model of a study is measured on its held-out images as a search would measure it: clean, PGD and margin
accuracy of the weights that the tables show. AutoAttack's accuracy on the test images is the stored one. Models that
AutoAttack leaves nothing of are not ranked: all objectives put them last. Intervals (95 %) by drawing methods with all
their models, for models of one method are no independent witnesses.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from reports.results import Results
from reports.tables.table import Key
from sweep.errors import UserError
from sweep.evaluation.checkpoints import trial_data, trial_model
from trainers import assembly
from trainers.measurement import measured

OBJECTIVES = ("clean", "pgd", "margin")
DRAWS = 2000


@dataclass(frozen=True)
class Column:
    """Of one method; a row for each model, in percent."""

    name: str
    objectives: np.ndarray
    autoattack: np.ndarray


def columns(store: str, study: str, data_dir: str) -> list[Column]:
    results = Results.read(store, [study])
    searched = {planned.label for planned in results.data.manifests[study].searches}
    found = []
    for label, name in results.labels[study].items():
        cell = results.cell(Key(study, label, "autoattack"))
        if cell.sample is None or label in searched or results.from_outside(study, label):
            continue
        attacked = dict(zip(cell.seeds, cell.sample.values, strict=True))
        trials = {one.seed: one.trial for one in results.seeds(study, label) if one.seed in attacked}
        checkpoint = results.shown_checkpoint(study)
        rows = [objectives(store, trials[seed], checkpoint, data_dir) for seed in attacked]
        found.append(Column(name, np.array(rows), np.array(list(attacked.values()))))
    return found


def objectives(store: str, trial: str, checkpoint: str, data_dir: str) -> list[float]:
    cpu = torch.device("cpu")
    model, record = trial_model(store, trial, checkpoint, "cpu")
    selection = record.config.selection.model_copy(update={"margin": True})
    config = record.config.model_copy(update={"selection": selection})
    images = assembly.prepare_data(config, trial_data(record, data_dir), Path(data_dir), cpu)
    row = measured(model, images, config, epoch=0, epochs=1, device=cpu)  # as after the last epoch, always measured
    return [100 * row[f"validation_{name}_accuracy"] for name in OBJECTIVES]


def correlations(found: list[Column]) -> np.ndarray:
    """Spearman's, of each objective with AutoAttack."""
    from scipy.stats import rankdata

    rows = np.concatenate([np.column_stack([one.objectives, one.autoattack]) for one in found])
    ranks = np.array([rankdata(column) for column in rows[rows[:, -1] > 0].T])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.corrcoef(ranks)[-1, :-1]


def lines(found: list[Column]) -> list[str]:
    table = ["| column | n | clean | PGD | margin | AutoAttack, test |", "|:--|--:|--:|--:|--:|--:|"]
    for one in sorted(found, key=lambda column: -column.autoattack.mean()):
        means = " | ".join(f"{value:.1f}" for value in [*one.objectives.mean(0), one.autoattack.mean()])
        table.append(f"| {one.name} | {len(one.autoattack)} | {means} |")
    ranked = [one for one in found if one.autoattack.any()]
    random = np.random.default_rng(0)
    drawn = [[ranked[place] for place in random.integers(len(ranked), size=len(ranked))] for _ in range(DRAWS)]
    draws = np.array([correlations(one) for one in drawn])
    values = [*correlations(ranked), correlations(ranked)[2] - correlations(ranked)[1]]
    spread = np.column_stack([draws, draws[:, 2] - draws[:, 1]])
    low, high = np.nanpercentile(spread, [2.5, 97.5], axis=0)
    models = sum(len(one.autoattack) for one in ranked)
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
        found = columns(options.store, options.study, options.data_dir)
    except UserError as fault:
        print(f"nothing to measure: {fault}; `python -m sweep.run` trains `digits`", file=sys.stderr)
        return 1
    print("\n".join(lines(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
