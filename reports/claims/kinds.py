"""What a claim asks of the numbers, one function per kind; each gives the claim's parts with verdict and evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from reports.claims.calculations import CALCULATIONS
from reports.claims.margins import PROMINENCE
from reports.claims.question import Part, Question
from reports.claims.rules import (
    NOTHING,
    Decision,
    Verdict,
    best,
    differs,
    gain_in_range,
    in_range,
    not_less,
    not_worse,
    same,
)
from reports.claims.series import along, falling_attack, not_monotone, peaks
from reports.statistics import ALPHA, Sample, compare
from reports.tables.table import p_text, signed


def _pairs(question: Question, judge_pair: Callable[[Sample, Sample], Decision], to: str | None = None) -> list[Part]:
    """Each first against each second, by the measure or by what is lost from it `to` another."""
    parts = []
    for first in question.labels("first"):
        for second in question.labels("second"):
            asked = question.with_shared([first, second], to)
            measure = asked.measures[0]
            one, two = (
                asked.sample(label) if to is None else asked.combined(label, measure, to, -1)
                for label in (first, second)
            )
            before = f"loss from {measure} to {to}: " if to else f"{measure}: " if asked is not question else ""
            if one is None or two is None:
                parts += asked.missing([first] * (one is None) + [second] * (two is None), before=before)
            else:
                decision = _with_numbers(asked, first, second, one, two, judge_pair(one, two), before)
                parts.append(asked.part([first, second], decision))
    return parts


def _with_numbers(
    question: Question, first: str, second: str, one: Sample, two: Sample, decision: Decision, before: str = ""
) -> Decision:
    numbers = f"{question.name(first)} {question.text(one)}, {question.name(second)} {question.text(two)}"
    between = " " if decision.evidence.startswith("(") else ": "
    return decision._replace(evidence=f"{before}{numbers}{between}{decision.evidence}")


def _extreme(question: Question, direction: int) -> list[Part]:
    """`first` against each of the others, by every measure of the claim."""
    parts = []
    (first,) = question.labels("first")
    asked = question.with_shared([first, *question.labels("second")])
    several = asked is not question or "also" in question.entry
    for measure in [asked.measures[0], *question.entry.get("also", [])]:
        one = asked.sample(first, measure)
        rivals = {label: asked.sample(label, measure) for label in question.labels("second")}
        known = {label: sample for label, sample in rivals.items() if sample is not None}
        if one is None or not known:
            parts += asked.missing([first] * (one is None) + list(rivals) * (not known), measure)
        else:
            lacking = [asked.lacking_name(label, measure) for label in rivals if label not in known]
            decision = _against_all(asked, first, one, known, direction, f"{measure}: " if several else "")
            parts.append(asked.part([first, *known], _without(decision, lacking)))
    return parts


def _against_all(
    question: Question, first: str, one: Sample, rivals: dict[str, Sample], direction: int, before: str
) -> Decision:
    decision, place = best(one, list(rivals.values()), direction)
    hardest = list(rivals)[place]
    untested = [question.name(label) for label, sample in rivals.items() if compare(one, sample).welch is None]
    before += f"hardest of {len(rivals)} rivals: " if len(rivals) > 1 else ""
    decision = _with_numbers(question, first, hardest, one, rivals[hardest], decision, before)
    if decision.p is None or not untested:
        return decision
    return decision._replace(remarks=(*decision.remarks, f"no test against {', '.join(untested)}"))


def _without(decision: Decision, lacking: Sequence[str]) -> Decision:
    """What is shown of some is not shown of all."""
    if not lacking:
        return decision
    verdict: Verdict = "undecided" if decision.verdict == "holds" else decision.verdict
    return decision._replace(verdict=verdict, remarks=(*decision.remarks, f"without {', '.join(lacking)}"))


def _range(question: Question) -> list[Part]:
    labels = [label for role in ("first", "second") if role in question.entry for label in question.labels(role)]
    question = question.with_shared(labels)
    samples = [question.sample(label) for label in labels]
    known = [sample for sample in samples if sample is not None]
    if len(known) < len(labels):
        return question.missing([label for label, sample in zip(labels, samples, strict=True) if sample is None])
    one, two = known[0], known[1] if len(known) > 1 else None
    if two is None:
        shown = f"{one.mean:.2f}"
    else:
        shown = f"{question.name(labels[0])} − {question.name(labels[1])} = {signed(one.mean - two.mean)}"
    decision = in_range(one, two, question.entry["low"], question.entry["high"])
    return [question.part(labels, decision._replace(evidence=f"{shown}, {decision.evidence}"))]


def _measures(question: Question, direction: int) -> list[Part]:
    """Two measures of one method, seed by seed."""
    measure, to = str(question.entry["measure"]), str(question.entry["to"])
    parts = []
    for label in map(str, question.entry["series"]):
        difference = question.combined(label, measure, to, -1)
        if difference is None:
            parts += question.missing([label])
        else:
            decision = differs(difference, NOTHING, direction)
            evidence = f"{question.name(label)}, {measure} − {to}: {decision.evidence}"
            parts.append(question.part([label], decision._replace(evidence=evidence)))
    return parts


def _least(question: Question) -> list[Part]:
    broken, checked, lacking = [], 0, 0
    series = [str(label) for label in question.entry["series"]]
    question = question.with_shared(series)
    for label in series:
        base = question.sample(label)
        for attack in question.entry["to"]:
            other = question.sample(label, str(attack))
            if base is None or other is None:
                lacking += 1
                continue
            checked += 1
            if other.mean < base.mean:
                broken.append(f"{question.name(label)} {attack} {question.text(other)} < {question.text(base)}")
    if not checked:
        return question.missing(series)
    evidence = f"{checked} comparisons" + (f"; against it: {'; '.join(broken)}" if broken else ", none against it")
    decision = Decision("does not hold" if broken else "holds", evidence)
    return [question.part(series, _without(decision, [f"{lacking} others"] if lacking else []))]


def _anticorrelated(question: Question) -> list[Part]:
    from scipy.stats import spearmanr

    series = [str(label) for label in question.entry["series"]]
    question = question.with_shared(series)
    pairs = {label: (question.sample(label), question.sample(label, str(question.entry["to"]))) for label in series}
    known = {label: (one.mean, two.mean) for label, (one, two) in pairs.items() if one is not None and two is not None}
    lacking = [label for label in series if label not in known]
    if len(known) < 5:
        return question.missing(lacking)
    result = spearmanr(*np.array(list(known.values())).T)
    rho, p = float(result.statistic), float(result.pvalue)
    verdict: Verdict = "undecided" if not p < ALPHA else "holds" if rho < 0 else "does not hold"
    evidence = f"Spearman's ρ = {rho:.2f} over {len(known)} methods, p = {p_text(p)}".replace("= <", "< ")
    decision = Decision(verdict, evidence, p if p == p else None)
    return [question.part(list(known), _without(decision, list(map(question.lacking_name, lacking))))]


def _calculation(question: Question) -> list[Part]:
    holds, evidence = CALCULATIONS[question.entry["calculation"]]()
    cited = question.entry.get("contradictions") if not holds else None
    if cited:
        evidence += f" (contradiction {', '.join(map(str, cited))})"
    return [Part("", "holds" if holds else "does not hold", evidence)]


def _not_covered(question: Question) -> list[Part]:
    return [Part("", "not run", "no shipped study repeats this")]


class Kind(NamedTuple):
    judge: Callable[[Question], list[Part]]
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
