"""Simulate the error rate and the power of each rule that gives a verdict.

    python -m benchmarks.verdicts                # all tables, as Markdown
    python -m benchmarks.verdicts best paired    # some of them

Values are normal with a fixed seed, in RUNS repetitions; the standard error of a rate near 5 % is 0.2 points. A family
has nine methods, as in the paper's main table. Claims are judged by the real functions. The rules of tables are
computed for all runs at once, and checked on the first runs against the functions that make the tables.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import numpy as np
from scipy.special import gammaln, ndtr, stdtr, stdtrit

from reports.analysis.claims import rules
from reports.analysis.claims.judge import Claim, Rule, corrected
from reports.analysis.claims.margins import peaks
from reports.analysis.claims.question import ClaimPart
from reports.analysis.claims.rules import Judgement
from reports.analysis.power import detectable_difference, t3_critical, welch_critical
from reports.analysis.statistics import ALPHA, Sample, compare_family, compare_with_best
from reports.tables.markdown import grid

RUNS = 20_000  # for rules that are computed for all runs at once
CLAIM_RUNS = 10_000  # for rules that are called run by run
CHECKED = 100  # runs compared with the functions that make the tables
METHODS = 9
SEEDS = (3, 5, 10)
SPREADS: dict[str, np.ndarray] = {
    "equal": np.ones(METHODS),
    "first 1, others 5": np.r_[1.0, np.full(METHODS - 1, 5.0)],
    "first 5, others 1": np.r_[5.0, np.ones(METHODS - 1)],
    "1 to 9": np.linspace(1.0, 9.0, METHODS),
}
# Difference in units of the median standard deviation that Welch's test of one pair detects with power 0.8, by n.
APART = {3: 3.5, 5: 2.1, 10: 1.32}
Critical = Callable[[np.ndarray], np.ndarray]


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return grid([list(row) for row in rows], list(headers))


# Critical values of rival rules: the largest of several correlated normals, studentized.

NORMAL = np.linspace(-8.0, 8.0, 321)
DENSITY = np.exp(-(NORMAL**2) / 2) / math.sqrt(2 * math.pi) * (NORMAL[1] - NORMAL[0])


def _range_below(x: np.ndarray) -> np.ndarray:
    """Return the probability that METHODS normals span less than sqrt(2) x (Tukey; Games and Howell)."""
    between = ndtr(NORMAL) - ndtr(NORMAL - math.sqrt(2) * x[:, None])
    return np.asarray(METHODS * (DENSITY * between ** (METHODS - 1)).sum(axis=1))


def _one_sided_below(x: np.ndarray) -> np.ndarray:
    """Return the probability that no method is more than x above the first (Dunnett; Hsu's MCB)."""
    return np.asarray((DENSITY * ndtr(math.sqrt(2) * x[:, None] + NORMAL) ** (METHODS - 1)).sum(axis=1))


def _two_sided_below(x: np.ndarray) -> np.ndarray:
    """Return the probability that no method is more than x from the first (Dunnett, two-sided)."""
    high, low = (ndtr(sign * math.sqrt(2) * x[:, None] + NORMAL) for sign in (1, -1))
    return np.asarray((DENSITY * (high - low) ** (METHODS - 1)).sum(axis=1))


@cache
def studentized(below: Callable[[np.ndarray], np.ndarray]) -> Critical:
    """Return the critical value of t at level ALPHA, as a function of the degrees of freedom."""
    points = np.linspace(0.0, 12.0, 1201)
    beyond = 1 - below(points)
    freedoms = np.geomspace(1.0, 400.0, 24)
    logs = np.linspace(-25.0, 2.5, 1101)
    log_values = []
    for freedom in freedoms:
        half = freedom / 2
        spread = np.exp(logs)
        weight = np.exp(math.log(2) + half * math.log(half) - gammaln(half) + freedom * logs - half * spread**2)
        weight *= logs[1] - logs[0]
        low, high = 0.0, math.log(1e4)
        while high - low > 1e-6:
            middle = (low + high) / 2
            tail = float(weight @ np.interp(math.exp(middle) * spread, points, beyond, right=0.0))
            low, high = (middle, high) if tail > ALPHA else (low, middle)
        log_values.append(high)
    return lambda freedom: np.exp(np.interp(np.log(freedom), np.log(freedoms), log_values))


class Families:
    """RUNS families of METHODS methods with n seeds each, in which the first method lies `lead` above the others."""

    def __init__(self, spread: np.ndarray, n: int, lead: float = 0.0) -> None:
        draws = np.random.default_rng([n, round(1000 * lead), *np.round(spread).astype(int)])
        self.values = draws.standard_normal((RUNS, METHODS, n)) * spread[:, None]
        self.values[:, 0] += lead
        self.n = n
        self.means = self.values.mean(axis=2)
        self.variances = self.values.var(axis=2, ddof=1)
        self.best = self.means.argmax(axis=1)

    def welch(self, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return |t| and degrees of freedom of every method against the reference, which itself has t = 0."""
        rows = np.arange(RUNS)
        share = self.variances / self.n
        both = share + share[rows, reference][:, None]
        freedom = both**2 * (self.n - 1) / (share**2 + share[rows, reference][:, None] ** 2)
        t = np.abs(self.means - self.means[rows, reference][:, None]) / np.sqrt(both)
        t[rows, reference] = 0.0
        return t, freedom

    def pooled(self, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the same with a pooled standard deviation."""
        distance = np.abs(self.means - self.means[np.arange(RUNS), reference][:, None])
        error = np.sqrt(2 * self.variances.mean(axis=1) / self.n)[:, None]
        return distance / error, np.full(distance.shape, float(METHODS * (self.n - 1)))

    def samples(self, run: int) -> list[Sample]:
        return [Sample.of(values) for values in self.values[run]]


def holm_rejects(t: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Return the comparisons that are significant after Holm; the reference itself has p = 1 and is not counted."""
    p = 2 * stdtr(freedom, -t)
    order = np.argsort(p, axis=1)
    steps = np.r_[np.arange(METHODS - 1, 0, -1), 1]
    passed = np.logical_and.accumulate(np.take_along_axis(p, order, 1) * steps < ALPHA, axis=1)
    rejected = np.zeros_like(passed)
    np.put_along_axis(rejected, order, passed, 1)
    return rejected


def against_best(families: Families) -> dict[str, np.ndarray]:
    """Return the rejections of each rule for comparisons with the best mean."""
    t, freedom = families.welch(families.best)
    pooled, all_freedom = families.pooled(families.best)
    return {
        "Welch, Holm": holm_rejects(t, freedom),
        "Hsu's MCB": t > studentized(_one_sided_below)(freedom),
        "Tukey, Kramer": pooled > studentized(_range_below)(all_freedom),
        "Games, Howell": t > studentized(_range_below)(freedom),
        "**T3**": t > t3_critical(METHODS)(freedom),
    }


def against_first(families: Families) -> dict[str, np.ndarray]:
    """Return the rejections of each rule for comparisons with the first method."""
    first = np.zeros(RUNS, dtype=int)
    t, freedom = families.welch(first)
    pooled, all_freedom = families.pooled(first)
    return {
        "Student, Holm": holm_rejects(*_student(families)),
        "Dunnett": pooled > studentized(_two_sided_below)(all_freedom),
        "**Welch, Holm**": holm_rejects(t, freedom),
    }


def _student(families: Families) -> tuple[np.ndarray, np.ndarray]:
    variance = families.variances + families.variances[:, :1]
    t = np.abs(families.means - families.means[:, :1]) / np.sqrt(variance / families.n)
    return t, np.full(t.shape, 2.0 * (families.n - 1))


def check(families: Families) -> None:
    """Raise AssertionError if the rules above differ from those of the tables in the first runs."""
    best, first = against_best(families)["**T3**"], against_first(families)["**Welch, Holm**"]
    for run in range(CHECKED):
        samples = families.samples(run)
        for rejected, comparisons in (
            (best, compare_with_best(samples, int(families.best[run]))),
            (first, compare_family(samples, 0)),
        ):
            decided = [comparison is not None and bool(comparison.significant) for comparison in comparisons]
            if decided != list(rejected[run]):
                raise AssertionError(f"the simulated rule differs from that of the tables in run {run}")


def families_table(rule: Callable[[Families], dict[str, np.ndarray]]) -> str:
    rows = []
    names: list[str] = []
    for spread_name, spread in SPREADS.items():
        for n in SEEDS:
            equal = Families(spread, n)
            check(equal)
            wrong = {name: float(rejected.any(axis=1).mean()) for name, rejected in rule(equal).items()}
            ahead = rule(Families(spread, n, APART[n] * float(np.median(spread))))
            power = {name: float(rejected[:, 1:].mean()) for name, rejected in ahead.items()}
            names = list(wrong)
            rows.append([spread_name, str(n), *(f"{percent(wrong[name])} / {100 * power[name]:.0f}" for name in names)])
    return table(["standard deviations", "n", *names], rows)


def best() -> str:
    return (
        "Against the best mean. Before the slash: % of runs in which, of nine equal methods, any differs significantly "
        "from the best. After it: % of the other methods that differ significantly from the best when the first "
        f"leads.\n\n{families_table(against_best)}"
    )


def baseline() -> str:
    return (
        "Against the first method, fixed beforehand. Before the slash: % of runs in which, of nine equal methods, any "
        "differs significantly from it. After it: % of the other methods that differ significantly when it leads."
        f"\n\n{families_table(against_first)}"
    )


def paired() -> str:
    """Compare Welch's and the paired test for two methods with correlated seeds."""
    rows = []
    for n in SEEDS:
        for correlation in (-0.5, 0.0, 0.5, 0.9):
            shares = []
            for difference in (0.0, APART[n]):
                draws = np.random.default_rng([n, round(10 * difference), round(10 * correlation) + 10])
                first, independent = draws.standard_normal((2, RUNS, n))
                second = correlation * first + math.sqrt(1 - correlation**2) * independent
                differences = first + difference - second
                t = np.abs(differences.mean(axis=1)) / (differences.std(axis=1, ddof=1) / math.sqrt(n))
                paired_p = 2 * stdtr(n - 1, -t)
                parts = first.var(axis=1, ddof=1) / n, second.var(axis=1, ddof=1) / n
                freedom = (parts[0] + parts[1]) ** 2 * (n - 1) / (parts[0] ** 2 + parts[1] ** 2)
                welch_p = 2 * stdtr(freedom, -np.abs(differences.mean(axis=1)) / np.sqrt(parts[0] + parts[1]))
                shares += [float((p < ALPHA).mean()) for p in (welch_p, paired_p)]
            rows.append([str(n), f"{correlation:g}", *map(percent, shares)])
    headers = ["n", "correlation of seeds", "**Welch**: wrong", "paired: wrong", "**Welch**: found", "paired: found"]
    return "One method against another, equal and 3.5, 2.1, 1.32 standard deviations apart.\n\n" + table(headers, rows)


def detectable() -> str:
    """Compare the difference that a report calls detectable with how often the family's verdict detects it."""
    rows = []
    for n in (2, *SEEDS):
        unit = Sample(0.0, 1.0, n)
        rules_of_n = partial(_student_value, n), welch_critical(ALPHA / (METHODS - 1)), t3_critical(METHODS)
        differences = [detectable_difference(unit, unit, critical) or math.inf for critical in rules_of_n]
        draws = np.random.default_rng(n)
        values = draws.standard_normal((RUNS, METHODS, n))
        values[:, 1] += differences[1]
        families = Families(SPREADS["equal"], n)
        families.values, families.means = values, values.mean(axis=2)
        families.variances = values.var(axis=2, ddof=1)
        power = float(against_first(families)["**Welch, Holm**"][:, 1].mean())
        rows.append([str(n), *(f"{value:.2f}" for value in differences), percent(power)])
    headers = ["n", "Student, no Holm", "**Welch, Holm** over 8", "**T3** among 9", "Welch, Holm finds its own in %"]
    return (
        "The difference, in standard deviations, that is detected with power 0.8. Last column: how often the family's "
        "verdict detects the difference stated for it.\n\n" + table(headers, rows)
    )


def _student_value(n: int, freedom: np.ndarray) -> np.ndarray:
    return np.full_like(freedom, float(stdtrit(2 * (n - 1), 1 - ALPHA / 2)))


def claim_cases() -> Iterator[tuple[str, str, Sequence[float], Callable[[list[Sample]], Judgement]]]:
    """Yield rule, situation, true means (standard deviation 1) and judge; a rule's first situation is its edge case."""

    def one_pair(rule: Callable[[Sample, Sample], Judgement]) -> Callable[[list[Sample]], Judgement]:
        return lambda samples: rule(samples[0], samples[1])

    yield "greater, lower", "equal", (50, 50), one_pair(lambda a, b: rules.differs(a, b, 1))
    yield "greater, lower", "4 above", (54, 50), one_pair(lambda a, b: rules.differs(a, b, 1))
    not_worse = one_pair(lambda a, b: rules.not_worse(a, b, 1.0))
    yield "not worse (1)", "1 below", (49, 50), not_worse
    yield "not worse (1)", "half a point below", (49.5, 50), not_worse
    yield "not worse (1)", "equal", (50, 50), not_worse
    yield "not worse (1)", "4 above", (54, 50), not_worse
    yield "not worse (1)", "5 below", (45, 50), not_worse
    same = one_pair(lambda a, b: rules.same(a, b, 0.1))
    yield "same (10 %)", "10 % apart", (55, 50), same
    yield "same (10 %)", "equal", (50, 50), same
    yield "same (10 %)", "20 % apart", (60, 50), same
    in_range = one_pair(lambda a, b: rules.in_range(a, b, 5.0, 13.0))
    yield "range 5 to 13", "at its end", (55, 50), in_range
    yield "range 5 to 13", "in its middle", (59, 50), in_range
    gain = one_pair(lambda a, b: rules.gain_in_range(a, b, 5.0, 13.0))
    yield "gain in range 5 to 13", "no gain", (50, 50), gain
    yield "gain in range 5 to 13", "2 below its end", (53, 50), gain
    yield "gain in range 5 to 13", "at its end", (55, 50), gain
    yield "gain in range 5 to 13", "in its middle", (59, 50), gain
    yield "rising, falling", "six equal", (50,) * 6, lambda samples: rules.trend(samples, 1)
    yield "rising, falling", "steps of 2", tuple(50 + 2 * k for k in range(6)), lambda samples: rules.trend(samples, 1)
    yield "not monotone", "six equal", (50,) * 6, rules.turns
    yield "not monotone", "falls by 6 at the end", (50, 52, 54, 54, 54, 48), rules.turns
    yield "highest, lowest", "nine equal", (50,) * 9, lambda samples: rules.best(samples[0], samples[1:], 1)[0]
    yield (
        "highest, lowest",
        "equal to one of eight",
        (50, 50, *(40,) * 7),
        lambda samples: rules.best(samples[0], samples[1:], 1)[0],
    )
    yield "highest, lowest", "4 above all", (54, *(50,) * 8), lambda samples: rules.best(samples[0], samples[1:], 1)[0]
    for needs in ("all", "most", "2"):
        judged = _claim_of_four(needs)
        yield f"needs {needs} of four", "equal", (50,) * 8, judged
        yield f"needs {needs} of four", "4 above in two", (54, 50) * 2 + (50, 50) * 2, judged
        yield f"needs {needs} of four", "4 above in all", (54, 50) * 4, judged


def _claim_of_four(needs: str) -> Callable[[list[Sample]], Judgement]:
    def judged(samples: list[Sample]) -> Judgement:
        parts = []
        for first, second in zip(samples[::2], samples[1::2], strict=True):
            decision = rules.differs(first, second, 1)
            parts.append(ClaimPart("", decision.verdict, "", "", decision.p))
        verdict = Claim("", "", "", needs, corrected(parts, needs), Rule("", "")).verdict
        assert verdict != "holds where run"
        return Judgement(verdict, "")

    return judged


def verdict_shares(means: Sequence[float], judged: Callable[[list[Sample]], Judgement], n: int) -> tuple[float, float]:
    """Return the shares of runs in which the claim holds and in which it does not."""
    values = np.random.default_rng([n, len(means)]).standard_normal((CLAIM_RUNS, len(means), n))
    values += np.asarray(means, dtype=float)[:, None]
    counts: Counter[str] = Counter()
    for row in zip(values.mean(axis=2).tolist(), values.std(axis=2, ddof=1).tolist(), strict=True):
        counts[judged([Sample(mean, std, n) for mean, std in zip(*row, strict=True)]).verdict] += 1
    return counts["holds"] / CLAIM_RUNS, counts["does not hold"] / CLAIM_RUNS


def claims() -> str:
    rows = []
    for rule, situation, means, judged in claim_cases():
        shares = [share for n in (3, 10) for share in verdict_shares(means, judged, n)]
        rows.append([rule, situation, *map(percent, shares)])
    headers = ["rule", "truth", "n = 3: holds", "does not hold", "n = 10: holds", "does not hold"]
    return "Rules of claims, standard deviation 1, % of runs with each verdict.\n\n" + table(headers, rows)


def shapes() -> str:
    """Simulate the rules without a test over seeds: counting peaks, ranks of methods, and the least of the means."""
    from scipy.stats import spearmanr

    draws = np.random.default_rng(0)
    rows = []
    images = 2_000  # fewer than in a data set, so that the result is not optimistic
    for name, apart in (("one normal", 0.0), ("two, 2.5 apart", 2.5), ("two, 3 apart", 3.0), ("two, 4 apart", 4.0)):
        counts: Counter[int] = Counter()
        for _ in range(CLAIM_RUNS):
            margins = draws.standard_normal(images)
            margins[: images // 2] += apart
            counts[int(peaks(margins))] += 1
        shares = [counts[1] / CLAIM_RUNS, counts[2] / CLAIM_RUNS]
        rows.append(["peaks of 2,000 images", name, *(percent(share) for share in shares), percent(1 - sum(shares))])
    ranks = [spearmanr(*draws.standard_normal((2, 7))) for _ in range(CLAIM_RUNS)]
    low = sum(result.pvalue < ALPHA and result.statistic < 0 for result in ranks) / CLAIM_RUNS
    high = sum(result.pvalue < ALPHA and result.statistic > 0 for result in ranks) / CLAIM_RUNS
    means = draws.standard_normal((CLAIM_RUNS, 5, 3)).mean(axis=2)
    least = float((means[:, 0] <= means.min(axis=1)).mean())
    text = table(["rule", "truth", "one peak", "two peaks", "more"], rows)
    other_rows = [
        ["anticorrelated, 7 methods", "no relation", percent(low), percent(high)],
        ["least of five attacks (no test)", "all equal", percent(least), percent(1 - least)],
    ]
    return f"{text}\n\n{table(['rule', 'truth', 'holds', 'does not hold'], other_rows)}"


TABLES = {
    "best": best,
    "baseline": baseline,
    "paired": paired,
    "detectable": detectable,
    "claims": claims,
    "shapes": shapes,
}


def main(wanted: list[str]) -> int:
    unknown = [name for name in wanted if name not in TABLES]
    if unknown:
        print(f"unknown table {', '.join(unknown)}; known: {', '.join(TABLES)}", file=sys.stderr)
        return 2
    for name in wanted or TABLES:
        print(f"### {name}\n\n{TABLES[name]()}\n", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
