"""Do twice the epochs raise any column of `digits`?

    python -m benchmarks.convergence --write digits_doubled.yaml    # the study with all that counts epochs doubled
    python -m sweep.run --study digits_doubled.yaml --store doubled --seeds 0-9    # and digits, --store store
    python -m benchmarks.convergence --store store --doubled doubled

The last command prints each column's mean, that of twice the epochs and their difference, and what such a table can
say: "no column rises by more than its standard deviation" is a test of a dozen columns at once, each of which fails it
by chance; how often is simulated. Two tests ask the same question with a known error: Welch's for each column,
corrected by Holm, and one of the mean over all columns, seed by seed, for what all of them share.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reports.statistics import Sample, holm

STUDY = "digits"
IMAGES = 360
RUNS = 100_000


def doubled() -> dict[str, Any]:
    """The study's file with twice the epochs; what is counted in epochs goes along, so that shares stay."""
    from sweep.studies import find
    from sweep.studies.file import read

    def twice(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: twice(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [2 * one for one in value] if name == "at" else value
        return 2 * value if name in ("epochs", "warmup_epochs", "from_epoch") else value

    study = twice(read(find(STUDY)))
    del study["search"]  # what it chose is no other column than its method's, trained longer
    return study


def samples(store: str, study: str) -> dict[str, Sample]:
    """AutoAttack's accuracies in percent by column, as tables show it; what a search chose is no column of its own."""
    from reports.results import Results
    from reports.tables.table import Key

    results = Results.read(store, [study])
    searched = {planned.label for planned in results.data.manifests[study].searches}
    cells = {label: results.cell(Key(study, label, "autoattack")) for label in results.labels[study]}
    shown = results.labels[study]
    return {
        shown[label]: cell.sample for label, cell in cells.items() if cell.sample is not None and label not in searched
    }


def lines(ours: dict[str, Sample], twice: dict[str, Sample]) -> list[str]:
    from scipy.stats import binomtest, t

    seeds = max(one.n for one in ours.values())
    whole = [name for name in ours if name in twice and ours[name].n == twice[name].n == seeds]
    p = [_rise(ours[one], twice[one]) for one in whole]
    corrected = dict(zip(whole, holm(p), strict=True))
    found = [
        "| column | AutoAttack | twice the epochs | difference | within the std? | p |",
        "|:--|--:|--:|--:|:--|--:|",
    ]
    for name, one in ours.items():
        if name not in whole:
            left = f"{twice[name].mean:.1f} (n = {twice[name].n})" if name in twice else "–"
            found.append(f"| {name} | {one.mean:.1f}±{one.std:.1f} (n = {one.n}) | {left} | | seeds are missing | |")
            continue
        two, rise = twice[name], twice[name].mean - one.mean
        numbers = f"{one.mean:.1f}±{one.std:.1f} | {two.mean:.1f}±{two.std:.1f} | {rise:+.1f}"
        found.append(f"| {name} | {numbers} | {'yes' if rise <= one.std else '**no**'} | {corrected[name]:.2f} |")
    above = sum(twice[name].mean - ours[name].mean > ours[name].std for name in whole)
    chance = exceeding([ours[name].mean for name in whole], [ours[name].std for name in whole], seeds)
    as_many = binomtest(above, len(whole), float(chance.mean()) / len(whole), alternative="greater").pvalue
    by_seed = np.mean([np.subtract(twice[name].values, ours[name].values) for name in whole], axis=0)
    mean, error = float(by_seed.mean()), float(by_seed.std(ddof=1)) / len(by_seed) ** 0.5
    half = error * float(t.ppf(0.975, len(by_seed) - 1))
    return [
        *found,
        "",
        "p: Welch's test of a rise, one-sided, after Holm over the columns.",
        f"{above} of {len(whole)} columns rise by more than their standard deviation. If twice the epochs changed "
        f"nothing, {chance.mean():.1f} would on average, and at least one in {(chance > 0).mean():.0%} of such tables "
        f"({RUNS:,} simulated); p = {as_many:.2f} for so many or more.",
        f"Mean over the columns: {mean:+.2f} points, 95 % {mean - half:+.2f} to {mean + half:+.2f} (Student; by seed "
        f"{', '.join(f'{one:+.2f}' for one in by_seed)}).",
    ]


def _rise(once: Sample, twice: Sample) -> float:
    """p of Welch's test, one-sided; equal numbers without spread, as where nothing is left of a method, are no rise."""
    from scipy.stats import ttest_ind

    if once.std == twice.std == 0:
        return float(twice.mean <= once.mean)
    return float(ttest_ind(twice.values, once.values, equal_var=False, alternative="greater").pvalue)


def exceeding(means: Sequence[float], spreads: Sequence[float], seeds: int, runs: int = RUNS) -> np.ndarray:
    """Per simulated table: how many columns rise by more than their own standard deviation though nothing changed.

    Accuracies are counts of test images about the column's mean; the spread of seeds is that of the column, pooled, for
    that of a single one is too uncertain to be taken for true.
    """
    draw = np.random.default_rng(0)
    spread = float(np.sqrt(np.mean(np.square(spreads))))
    found = np.zeros(runs, int)
    for mean in means:
        values = np.rint(draw.normal(mean, spread, (2, runs, seeds)) * IMAGES / 100) * 100 / IMAGES
        found += values[1].mean(1) - values[0].mean(1) > values[0].std(1, ddof=1)
    return found


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
