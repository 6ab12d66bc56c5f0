"""The kinds of claims: what each asks of the numbers. Each function returns the claim's parts with their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from reports.analysis.claims.calculations import CALCULATIONS
from reports.analysis.claims.margins import PROMINENCE
from reports.analysis.claims.question import ClaimPart, Question
from reports.analysis.claims.rules import (
    NOTHING,
    Judgement,
    Verdict,
    best,
    differs,
    gain_in_range,
    in_range,
    not_less,
    not_worse,
    same,
)
from reports.analysis.claims.series import along, falling_attack, not_monotone, peaks
from reports.analysis.statistics import ALPHA, Sample, compare
from reports.tables.table import p_text, signed


def _pairs(
    question: Question, judge_pair: Callable[[Sample, Sample], Judgement], to: str | None = None
) -> list[ClaimPart]:
    """Compare each first label with each second one, by the measure or by the loss from it `to` another measure."""
    parts = []
    for first in question.labels("first"):
        for second in question.labels("second"):
            shared = question.with_shared([first, second], to)
            measure = shared.measures[0]
            ours, theirs = (
                shared.sample(label) if to is None else shared.combined(label, measure, to, -1)
                for label in (first, second)
            )
            before = f"loss from {measure} to {to}: " if to else f"{measure}: " if shared is not question else ""
            if ours is None or theirs is None:
                parts += shared.missing([first] * (ours is None) + [second] * (theirs is None), before=before)
            else:
                judgement = judge_pair(ours, theirs)
                judgement = _with_numbers(shared, {first: ours, second: theirs}, judgement, before)
                parts.append(shared.part([first, second], judgement))
    return parts


def _with_numbers(question: Question, samples: dict[str, Sample], judgement: Judgement, before: str) -> Judgement:
    """Put the numbers of these labels before the evidence."""
    numbers = ", ".join(f"{question.name(label)} {question.text(sample)}" for label, sample in samples.items())
    between = " " if judgement.evidence.startswith("(") else ": "
    return judgement._replace(evidence=f"{before}{numbers}{between}{judgement.evidence}")


def _extreme(question: Question, direction: int) -> list[ClaimPart]:
    """Compare `first` with all others, by every measure of the claim."""
    parts = []
    (first,) = question.labels("first")
    shared = question.with_shared([first, *question.labels("second")])
    several = shared is not question or "also" in question.entry
    for measure in [shared.measures[0], *question.entry.get("also", [])]:
        candidate = shared.sample(first, measure)
        samples = {label: shared.sample(label, measure) for label in question.labels("second")}
        rivals = {label: sample for label, sample in samples.items() if sample is not None}
        if candidate is None or not rivals:
            parts += shared.missing([first] * (candidate is None) + list(samples) * (not rivals), measure)
        else:
            missing = [shared.missing_name(label, measure) for label in samples if label not in rivals]
            judgement = _against_all(shared, first, candidate, rivals, direction, f"{measure}: " if several else "")
            parts.append(shared.part([first, *rivals], _without(judgement, missing)))
    return parts


def _against_all(
    question: Question, first: str, candidate: Sample, rivals: dict[str, Sample], direction: int, before: str
) -> Judgement:
    judgement, index = best(candidate, list(rivals.values()), direction)
    hardest = list(rivals)[index]
    untested = [question.name(label) for label, sample in rivals.items() if compare(candidate, sample).welch is None]
    before += f"hardest of {len(rivals)} rivals: " if len(rivals) > 1 else ""
    judgement = _with_numbers(question, {first: candidate, hardest: rivals[hardest]}, judgement, before)
    if judgement.p is None or not untested:
        return judgement
    return judgement._replace(remarks=(*judgement.remarks, f"no test against {', '.join(untested)}"))


def _without(judgement: Judgement, missing: Sequence[str]) -> Judgement:
    """Note labels without numbers. A claim shown for some labels is undecided for all."""
    if not missing:
        return judgement
    verdict: Verdict = "undecided" if judgement.verdict == "holds" else judgement.verdict
    return judgement._replace(verdict=verdict, remarks=(*judgement.remarks, f"without {', '.join(missing)}"))


def _range(question: Question) -> list[ClaimPart]:
    """Judge whether a value, or the difference of two labels, is in the claimed range."""
    labels = [label for role in ("first", "second") if role in question.entry for label in question.labels(role)]
    question = question.with_shared(labels)
    samples = [question.sample(label) for label in labels]
    present = [sample for sample in samples if sample is not None]
    if len(present) < len(labels):
        return question.missing([label for label, sample in zip(labels, samples, strict=True) if sample is None])
    first, second = present[0], present[1] if len(present) > 1 else None
    if second is None:
        value = f"{first.mean:.2f}"
    else:
        value = f"{question.name(labels[0])} − {question.name(labels[1])} = {signed(first.mean - second.mean)}"
    judgement = in_range(first, second, question.entry["low"], question.entry["high"])
    return [question.part(labels, judgement._replace(evidence=f"{value}, {judgement.evidence}"))]


def _measures(question: Question, direction: int) -> list[ClaimPart]:
    """Compare two measures of each label, seed by seed."""
    measure, to = str(question.entry["measure"]), str(question.entry["to"])
    parts = []
    for label in map(str, question.entry["series"]):
        difference = question.combined(label, measure, to, -1)
        if difference is None:
            parts += question.missing([label])
        else:
            judgement = differs(difference, NOTHING, direction)
            evidence = f"{question.name(label)}, {measure} − {to}: {judgement.evidence}"
            parts.append(question.part([label], judgement._replace(evidence=evidence)))
    return parts


def _least(question: Question) -> list[ClaimPart]:
    """Judge by the means alone whether the claim's measure is the lowest of these attacks for every label."""
    contrary, checked, missing = [], 0, 0
    series = [str(label) for label in question.entry["series"]]
    question = question.with_shared(series)
    for label in series:
        base = question.sample(label)
        for attack in question.entry["to"]:
            other = question.sample(label, str(attack))
            if base is None or other is None:
                missing += 1
                continue
            checked += 1
            if other.mean < base.mean:
                contrary.append(f"{question.name(label)} {attack} {question.text(other)} < {question.text(base)}")
    if not checked:
        return question.missing(series)
    evidence = f"{checked} comparisons" + (f"; against it: {'; '.join(contrary)}" if contrary else ", none against it")
    judgement = Judgement("does not hold" if contrary else "holds", evidence)
    return [question.part(series, _without(judgement, [f"{missing} others"] if missing else []))]


def _anticorrelated(question: Question) -> list[ClaimPart]:
    """Judge whether two measures are negatively correlated over the claim's labels."""
    from scipy.stats import spearmanr

    series = [str(label) for label in question.entry["series"]]
    question = question.with_shared(series)
    pairs = {label: (question.sample(label), question.sample(label, str(question.entry["to"]))) for label in series}
    means = {label: (x.mean, y.mean) for label, (x, y) in pairs.items() if x is not None and y is not None}
    missing = [label for label in series if label not in means]
    if len(means) < 5:
        return question.missing(missing)
    result = spearmanr(*np.array(list(means.values())).T)
    rho, p = float(result.statistic), float(result.pvalue)
    verdict: Verdict = "undecided" if not p < ALPHA else "holds" if rho < 0 else "does not hold"
    evidence = f"Spearman's ρ = {rho:.2f} over {len(means)} methods, p = {p_text(p)}".replace("= <", "< ")
    judgement = Judgement(verdict, evidence, p if p == p else None)
    return [question.part(list(means), _without(judgement, list(map(question.missing_name, missing))))]


def _calculation(question: Question) -> list[ClaimPart]:
    holds, evidence = CALCULATIONS[question.entry["calculation"]]()
    cited = question.entry.get("contradictions") if not holds else None
    if cited:
        evidence += f" (contradiction {', '.join(map(str, cited))})"
    return [ClaimPart("", "holds" if holds else "does not hold", evidence)]


def _not_covered(question: Question) -> list[ClaimPart]:
    return [ClaimPart("", "not run", "no shipped study repeats this")]


class Kind(NamedTuple):
    """A kind of claim: the function that judges it, and its rule in words."""

    judge: Callable[[Question], list[ClaimPart]]
    rule: str  # what was applied, in one sentence; {names} are the claim's own entries


KINDS: dict[str, Kind] = {
    "greater": Kind(
        lambda question: _pairs(question, partial(differs, direction=1)),
        "Holds if the first is significantly higher than the second, does not hold if significantly lower.",
    ),
    "lower": Kind(
        lambda question: _pairs(question, partial(differs, direction=-1)),
        "Holds if the first is significantly lower than the second, does not hold if significantly higher.",
    ),
    "not_worse": Kind(
        lambda question: _pairs(question, partial(not_worse, within=question.entry["within"])),
        "Holds if the 95 % interval of the difference lies above −{within} (percentage points, a margin of ours), does "
        "not hold if it lies below.",
    ),
    "not_less": Kind(
        lambda question: _pairs(question, partial(not_less, share=question.entry["within"])),
        "Holds if the 95 % interval of the difference lies above −{within:.0%} of the second's mean (a margin of "
        "ours), does not hold if it lies below.",
    ),
    "same": Kind(
        lambda question: _pairs(question, partial(same, share=question.entry["within"])),
        "Holds if the 95 % interval of the difference lies within ±{within:.0%} of the second's mean (a margin of "
        "ours), does not hold if it lies outside.",
    ),
    "highest": Kind(
        lambda question: _extreme(question, 1),
        "Holds if significantly higher than every rival, does not hold if a rival is significantly higher (Holm over "
        "the rivals).",
    ),
    "lowest": Kind(
        lambda question: _extreme(question, -1),
        "Holds if significantly lower than every rival, does not hold if a rival is significantly lower (Holm over the "
        "rivals).",
    ),
    "drop": Kind(
        lambda question: _pairs(question, partial(differs, direction=1), str(question.entry["to"])),
        "Holds if the first loses significantly more than the second, does not hold if significantly less.",
    ),
    "range": Kind(
        _range,
        "Holds if the 95 % interval lies inside the claimed range, does not hold if it lies outside; undecided where "
        "no spread is known.",
    ),
    "gain_in_range": Kind(
        lambda question: _pairs(
            question, partial(gain_in_range, low=question.entry["low"], high=question.entry["high"])
        ),
        "Holds if the first is significantly higher than the second by a gain inside the claimed range ({low} to "
        "{high}, whose ends are themselves measured), does not hold if the 95 % interval of the gain lies outside.",
    ),
    "not_monotone": Kind(
        not_monotone,
        "Holds if a later value is significantly below an earlier one (Holm over all pairs), does not hold if every "
        "step rises significantly.",
    ),
    "measure_greater": Kind(
        lambda question: _measures(question, 1),
        "Holds if the first measure is significantly above the second within the same trainings (Student's t-test of "
        "the differences seed by seed), does not hold if significantly below.",
    ),
    "measure_lower": Kind(
        lambda question: _measures(question, -1),
        "Holds if the first measure is significantly below the second within the same trainings (Student's t-test of "
        "the differences seed by seed), does not hold if significantly above.",
    ),
    "peaks": Kind(
        peaks,
        "By counting, no test: peaks of the training images' margin losses, smoothed with Silverman's bandwidth, that "
        f"stand out by {PROMINENCE:.0%} of the highest. Holds if every seed has the claimed number, does not hold if "
        "none has, undecided with a single seed.",
    ),
    "rising": Kind(
        lambda question: along(question, 1),
        "Holds if every step rises (by the means alone, no test) and the last is significantly above the first, does "
        "not hold if a step falls significantly (Holm over the steps).",
    ),
    "falling": Kind(
        lambda question: along(question, -1),
        "Holds if every step falls (by the means alone, no test) and the last is significantly below the first, does "
        "not hold if a step rises significantly (Holm over the steps).",
    ),
    "falling_attack": Kind(
        falling_attack,
        "Holds if the accuracy falls from attack to attack (by the means alone, no test) and significantly from the "
        "first to the last, does not hold if it rises significantly at a step (Holm over the steps).",
    ),
    "least": Kind(
        _least, "By the means alone, no test: holds if no other attack has a lower mean, does not hold if one has."
    ),
    "anticorrelated": Kind(
        _anticorrelated,
        "Spearman's rank correlation of the methods' means, two-sided at 5 %: holds if significantly negative, does "
        "not hold if significantly positive.",
    ),
    "calculation": Kind(_calculation, "Calculated, no test."),
    "not_covered": Kind(_not_covered, "Not judged."),
}
