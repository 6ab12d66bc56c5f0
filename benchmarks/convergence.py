"""Test whether doubling the epochs raises any column of `digits`.

    python -m benchmarks.convergence --write digits_doubled.yaml    # the study with all epoch counts doubled
    python -m sweep.run --study digits_doubled.yaml --store doubled --seeds 0-9    # and digits, --store store
    python -m benchmarks.convergence --store store --doubled doubled

The last command prints each column's mean, the mean with twice the epochs, and their difference. "No column rises by
more than its standard deviation" tests a dozen columns at once, and each can fail by chance; the output says how often,
by simulation. Two tests with a known error rate answer the same question: Welch's test for each column, corrected by
Holm, and a test of the mean over all columns, seed by seed, for a rise that they share.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reports.analysis.statistics import Sample, holm

STUDY = "digits"
IMAGES = 360
RUNS = 100_000


def doubled() -> dict[str, Any]:
    """Return the study's file with all epoch counts doubled, so that their proportions stay the same."""
    from sweep.studies import find
    from sweep.studies.file import read

    def twice(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: twice(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [2 * item for item in value] if name == "at" else value
        return 2 * value if name in ("epochs", "warmup_epochs", "from_epoch") else value

    study = twice(read(find(STUDY)))
    del study["search"]  # with longer training, its column would repeat the method's own
    return study


def samples(store: str, study: str) -> dict[str, Sample]:
    """Return AutoAttack accuracies in percent by column, under the names in tables; searched columns are omitted."""
    from reports.analysis.results import Results
    from reports.tables.table import Key

    results = Results.read(store, [study])
    searched = {planned.label for planned in results.data.manifests[study].searches}
    cells = {label: results.cell(Key(study, label, "autoattack")) for label in results.labels[study]}
    displays = results.labels[study]
    return {
        displays[label]: cell.sample
        for label, cell in cells.items()
        if cell.sample is not None and label not in searched
    }


def lines(ours: dict[str, Sample], twice: dict[str, Sample]) -> list[str]:
    from scipy.stats import binomtest, t

    seeds = max(sample.n for sample in ours.values())
    complete = [name for name in ours if name in twice and ours[name].n == twice[name].n == seeds]
    p = [_rise(ours[name], twice[name]) for name in complete]
    corrected = dict(zip(complete, holm(p), strict=True))
    rows = [
        "| column | AutoAttack | twice the epochs | difference | within the std? | p |",
        "|:--|--:|--:|--:|:--|--:|",
    ]
    for name, once in ours.items():
        if name not in complete:
            unpaired = f"{twice[name].mean:.1f} (n = {twice[name].n})" if name in twice else "–"
            rows.append(
                f"| {name} | {once.mean:.1f}±{once.std:.1f} (n = {once.n}) | {unpaired} | | seeds are missing | |"
            )
            continue
        doubled_sample, rise = twice[name], twice[name].mean - once.mean
        numbers = f"{once.mean:.1f}±{once.std:.1f} | {doubled_sample.mean:.1f}±{doubled_sample.std:.1f} | {rise:+.1f}"
        rows.append(f"| {name} | {numbers} | {'yes' if rise <= once.std else '**no**'} | {corrected[name]:.2f} |")
    above = sum(twice[name].mean - ours[name].mean > ours[name].std for name in complete)
    chance = exceeding([ours[name].mean for name in complete], [ours[name].std for name in complete], seeds)
    as_many = binomtest(above, len(complete), float(chance.mean()) / len(complete), alternative="greater").pvalue
    by_seed = np.mean([np.subtract(twice[name].values, ours[name].values) for name in complete], axis=0)
    mean, error = float(by_seed.mean()), float(by_seed.std(ddof=1)) / len(by_seed) ** 0.5
    half = error * float(t.ppf(0.975, len(by_seed) - 1))
    return [
        *rows,
        "",
        "p: one-sided Welch test of a rise, after Holm correction over the columns.",
        f"{above} of {len(complete)} columns rise by more than their standard deviation. If twice the epochs changed "
        f"nothing, {chance.mean():.1f} would on average, and at least one would in {(chance > 0).mean():.0%} of such "
        f"tables ({RUNS:,} simulated); p = {as_many:.2f} for this many or more.",
        f"Mean over the columns: {mean:+.2f} points, 95 % {mean - half:+.2f} to {mean + half:+.2f} (Student; by seed "
        f"{', '.join(f'{rise:+.2f}' for rise in by_seed)}).",
    ]


def _rise(once: Sample, twice: Sample) -> float:
    """Return p of a one-sided Welch test. Equal means without spread, such as 0 % in every seed, are no rise."""
    from scipy.stats import ttest_ind

    if once.std == twice.std == 0:
        return float(twice.mean <= once.mean)
    return float(ttest_ind(twice.values, once.values, equal_var=False, alternative="greater").pvalue)


def exceeding(means: Sequence[float], spreads: Sequence[float], seeds: int, runs: int = RUNS) -> np.ndarray:
    """Return, per simulated table without any change, how many columns rise by more than their standard deviation.

    Accuracies are counts of test images around the column's mean. The spread over seeds is pooled over the columns,
    because that of a single column is too uncertain.
    """
    draw = np.random.default_rng(0)
    spread = float(np.sqrt(np.mean(np.square(spreads))))
    counts = np.zeros(runs, int)
    for mean in means:
        values = np.rint(draw.normal(mean, spread, (2, runs, seeds)) * IMAGES / 100) * 100 / IMAGES
        counts += values[1].mean(1) - values[0].mean(1) > values[0].std(1, ddof=1)
    return counts


def main() -> int:
    import yaml

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--store", default="store")
    parser.add_argument("--doubled", metavar="STORE")
    parser.add_argument("--doubled-study", default=f"{STUDY}_doubled")
    options = parser.parse_args()
    if options.write:
        options.write.write_text(yaml.safe_dump(doubled(), sort_keys=False))
    if options.doubled:
        print("\n".join(lines(samples(options.store, STUDY), samples(options.doubled, options.doubled_study))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
