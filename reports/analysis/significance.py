"""Significance of a study's differences: each method against the baseline and against the best, over seeds and images.

The baseline is fixed beforehand, so Welch's test after Holm decides. The best is chosen by the data, so Dunnett's T3
decides. The paired test over shared seeds is shown but decides nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from reports.analysis.power import (
    MOST_SEEDS,
    Critical,
    detectable_difference,
    seeds_needed,
    t3_critical,
    welch_critical,
)
from reports.analysis.results import Results
from reports.analysis.statistics import (
    ALPHA,
    Comparison,
    compare_family,
    compare_with_best,
    mcnemar,
    paired_bootstrap,
    paired_p,
    undecided_level,
)
from reports.store.load import ReportData
from reports.tables.table import Key, TableCell, best_index
from sweep.listing import seed_list


@dataclass(frozen=True)
class SeedVerdicts:
    """The verdicts on one method: one row per seed, one column per test image."""

    seeds: tuple[int, ...]
    images: np.ndarray

    def rows(self, seeds: list[int]) -> np.ndarray:
        """Return the rows of these seeds, in this order."""
        return self.images if list(self.seeds) == seeds else self.images[[self.seeds.index(seed) for seed in seeds]]


@dataclass(frozen=True)
class OverImages:
    """A comparison of two methods image by image, on the seeds that both have."""

    difference: float  # percentage points
    low: float
    high: float
    mcnemar: tuple[float, ...]  # one p per seed


@dataclass(frozen=True)
class Versus:
    """A comparison of one method with the reference."""

    label: str
    display: str
    cell: TableCell
    comparison: Comparison
    over_images: OverImages | None
    paired: float | None  # p over the seeds that both have
    shaky: bool  # the better-looking method has lost seeds, which can only flatter it
    detectable: float | None  # percentage points, at the present number of seeds and the table's own level
    needed: int | None  # seeds per method that would probably decide; None if decided or unknown

    @property
    def verdict(self) -> str:
        significant = self.comparison.significant
        if significant is None:
            return self.comparison.undefined
        if significant and not self.shaky:
            return "better" if self.comparison.difference > 0 else "worse"
        return "undecided"

    @property
    def name(self) -> str:
        """Return the display name with n, if it is not the planned one, and marks of seeds lost or near chance."""
        sample = self.cell.sample
        n = f" (n={sample.n})" if sample is not None and (sample.n != self.cell.planned or sample.n == 1) else ""
        return self.display + "".join(sign for sign in self.cell.marks if sign in "‡§≈") + n


@dataclass(frozen=True)
class Tests:
    """The comparisons of all methods of a study with one reference."""

    study: str
    measure: str
    reference: str
    reference_display: str
    reference_cell: TableCell
    is_best: bool
    fixed: bool  # the paper's baseline, whatever the data say
    rows: tuple[Versus, ...]

    @property
    def rule(self) -> str:
        return f"{'Welch, two-sided, Holm' if self.fixed else 'T3, two-sided'}, α = {ALPHA:g}"

    @property
    def can_find(self) -> str | None:
        """Return in words what the present seeds can find by this table's rule; None if no test is possible."""
        detectable = sorted(row.detectable for row in self.rows if row.detectable is not None)
        if not detectable:
            return None
        least, middle, most = detectable[0], detectable[len(detectable) // 2], detectable[-1]
        tests = len(detectable)
        over = f"over {tests} comparisons" if tests > 1 else "over one comparison"
        by = f"Welch after Holm {over}" if self.fixed else f"T3 among {tests + 1} methods"
        between = "" if tests == 1 else f" (median over the methods; {least:.1f} to {most:.1f})"
        return (
            f"With {self._seeds} and the spreads seen here, a true difference to {self.reference_display} must be "
            f"about {middle:.1f} points{between} for the verdict of this table ({by}) to find it in 4 of 5 repetitions."
        )

    @property
    def _seeds(self) -> str:
        """Return the numbers of seeds of the testable methods in words."""
        samples = [row.cell.sample for row in self.rows if row.detectable is not None]
        ns = sorted({sample.n for sample in samples if sample is not None})
        base = self.reference_cell.sample.n if self.reference_cell.sample is not None else 0
        if ns == [base]:
            return f"n = {base}"
        rest = str(ns[0]) if len(ns) == 1 else f"{ns[0]} to {ns[-1]}"
        return f"the present seeds (n = {base} of {self.reference_display} against {rest})"


def study_tests(results: Results, study: str, measure: str = "autoattack", *, everyone: bool = False) -> list[Tests]:
    """Return the tests against the baseline, then against the best method.

    The best is left out if it is the baseline, or if there are only two methods. Labels that share the very same
    trainings count as one method.
    everyone: add tests against each other method by T3, which holds for all pairs at once.
    """
    keys = [Key(study, label, measure, results.epsilon(study)) for label in results.labels[study]]
    all_cells = [results.cell(key) for key in keys]
    cells = [cell for cell in all_cells if cell.sample is not None and not cell.same_as]
    best = best_index(cell.sample for cell in cells)
    if best is None:
        return []
    verdicts = {cell.label: seed_verdicts(results, cell) for cell in cells}
    tuned = results.searches(study)
    baselines = [
        label
        for label in results.labels[study]
        if results.methods[study, label] == results.paper.baseline and label not in tuned
    ]
    baseline = next((index for index, cell in enumerate(cells) if cell.label in baselines[:1]), None)
    references = [] if baseline is None else [baseline]
    if baseline is None or (baseline != best and len(cells) > 2):
        references.append(best)
    tests = [
        _tests(results, cells, verdicts, reference, reference == best, reference == baseline)
        for reference in references
    ]
    others = [index for index in range(len(cells)) if index not in references] if everyone else []
    return tests + [
        _tests(results, cells, verdicts, reference, reference == best, False, power=False) for reference in others
    ]


def _tests(
    results: Results,
    cells: list[TableCell],
    verdicts: dict[str, SeedVerdicts],
    reference: int,
    is_best: bool,
    fixed: bool,
    power: bool = True,
) -> Tests:
    base = cells[reference]
    names = results.labels[base.key.study]
    samples = [cell.sample for cell in cells]
    if not fixed:
        family = compare_with_best(samples, reference)
        tests = sum(comparison is not None and comparison.welch is not None for comparison in family)
        at_first: Critical | None
        at_next: Critical | None
        at_first = at_next = t3_critical(1 + max(1, tests)) if power else None
    else:
        family = compare_family(samples, reference)
        tests = sum(comparison is not None and comparison.welch is not None for comparison in family)
        # Holm's first step finds a lone difference. An undecided one comes after those already significant.
        at_first, at_next = welch_critical(ALPHA / max(1, tests)), welch_critical(undecided_level(family))
    rows = [
        _versus(cell, base, names[cell.label], comparison, verdicts, at_first, at_next)
        for cell, comparison in zip(cells, family, strict=True)
        if comparison is not None
    ]
    return Tests(base.key.study, base.key.measure, base.label, names[base.label], base, is_best, fixed, tuple(rows))


def _versus(
    cell: TableCell,
    base: TableCell,
    display: str,
    comparison: Comparison,
    verdicts: dict[str, SeedVerdicts],
    at_first: Critical | None,  # None: skip the numbers of seeds needed
    at_next: Critical | None,
) -> Versus:
    assert cell.sample is not None and base.sample is not None
    ours = dict(zip(cell.seeds, cell.sample.values, strict=True))
    theirs = dict(zip(base.seeds, base.sample.values, strict=True))
    shared = [seed for seed in ours if seed in theirs]
    undecided = comparison.significant is False
    return Versus(
        cell.label,
        display,
        cell,
        comparison,
        over_images(verdicts[cell.label], verdicts[base.label]),
        paired_p([ours[seed] for seed in shared], [theirs[seed] for seed in shared]),
        bool((cell if comparison.difference > 0 else base).lost),
        detectable_difference(cell.sample, base.sample, at_first) if at_first else None,
        seeds_needed(cell.sample, base.sample, at_next) if undecided and at_next else None,
    )


def seed_verdicts(results: Results, cell: TableCell) -> SeedVerdicts:
    """Return the verdicts on every seed of a cell that was evaluated on the usual number of images."""
    study, epsilon = cell.key.study, results.epsilon(cell.key.study)
    checkpoint = results.shown_checkpoint(study)
    by_seed = {}
    for planned in results.seeds(study, cell.label):
        if planned.seed in cell.seeds:
            evaluation = results.evaluation(study, planned.trial, checkpoint, cell.key.measure, epsilon)
            if evaluation is not None:
                by_seed[planned.seed] = results.data.verdicts(evaluation.path)
    # Only seeds evaluated on the same images can be stacked: keep the largest group.
    sizes = Counter(verdicts.size for verdicts in by_seed.values())
    usual = max(sizes, key=lambda size: (sizes[size], size), default=0)
    seeds = [seed for seed in sorted(by_seed) if by_seed[seed].size == usual]
    return SeedVerdicts(tuple(seeds), np.stack([by_seed[seed] for seed in seeds]) if seeds else np.zeros((0, 0), bool))


def over_images(first: SeedVerdicts, second: SeedVerdicts) -> OverImages | None:
    """Compare two methods image by image; None if they share no seed or were evaluated on different images."""
    shared = [seed for seed in first.seeds if seed in second.seeds]
    if not shared or first.images.shape[1] != second.images.shape[1]:
        return None
    ours, theirs = first.rows(shared), second.rows(shared)
    difference, low, high = paired_bootstrap(ours, theirs)
    return OverImages(100 * difference, 100 * low, 100 * high, tuple(map(float, mcnemar(ours, theirs))))


def advice(data: ReportData, test: Tests, row: Versus) -> str | None:
    """Return what would settle an undecided comparison, with the command; None if nothing is undecided or testable.

    Lost seeds of the better-looking method leave it undecided at any n. The command runs the sequential test instead of
    a number of further seeds: adding seeds because a test has not decided, and then repeating that test, doubles its
    error rate.
    """
    if row.verdict != "undecided":
        return None
    names = f"{row.display} against {test.reference_display}"
    if row.shaky:
        ahead = row.comparison.difference > 0
        better, cell = (row.display, row.cell) if ahead else (test.reference_display, test.reference_cell)
        return f"{names}: {_lost_words(better, cell)}"
    if row.needed is None:
        return (
            f"{names}: too close for seeds to decide; if means and spreads stay as observed, even {MOST_SEEDS} per "
            "method would do so in fewer than 4 of 5 repetitions."
        )
    present = min(row.cell.sample.n if row.cell.sample else 0, test.reference_cell.sample.n)  # type: ignore[union-attr]
    more = row.needed - present
    higher, lower = (row.label, test.reference) if row.comparison.difference > 0 else (test.reference, row.label)
    if row.cell.lost or test.reference_cell.lost:
        command = "the test that allows to look after every seed does not allow for lost ones."
    else:
        decide = data.decide_command(test.study, f"{higher} > {lower}")
        command = f"by a test that allows to look after every seed: `{decide}`"
    return (
        f"{names}: if means and spreads stay as observed, about {more} more {'seed' if more == 1 else 'seeds'} would "
        f"decide this in 4 of 5 repetitions; {command}"
    )


def _lost_words(name: str, cell: TableCell) -> str:
    """Return why lost seeds leave a comparison undecided."""
    counts = ((cell.collapsed, "collapsed"), (cell.failed, "failed"))
    lost = " and ".join(f"{count} of {name}'s seeds {what}" for count, what in counts if count)
    retried = "" if cell.collapsed else ", running the failed ones again does"
    return f"undecided because {lost}; while {name} looks better no number of further seeds changes that{retried}."


def seeds_command(data: ReportData, study: str, labels: list[str], seeds: list[int], *words: str) -> str:
    """Return the command that trains labels with these seeds."""
    return data.run_command(study, "--methods", ",".join(labels), "--seeds", seed_list(seeds), *words)
