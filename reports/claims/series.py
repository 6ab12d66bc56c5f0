"""Claims about a row of values: along a hyperparameter, from attack to attack, or the peaks of one histogram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reports.claims.question import Part, Question
from reports.claims.rules import Decision, Verdict, trend, turns
from reports.statistics import Sample


def along(question: Question, direction: int) -> list[Part]:
    series = [str(label) for label in question.entry["series"]]
    question = question.with_shared(series)
    samples = [question.sample(label) for label in series]
    lacking = [label for label, sample in zip(series, samples, strict=True) if sample is None]
    known = [sample for sample in samples if sample is not None]
    if lacking:
        return question.missing(lacking)
    return [question.part(series, _steps(question, known, direction))]


def not_monotone(question: Question) -> list[Part]:
    series = [str(label) for label in question.entry["series"]]
    question = question.with_shared(series)
    samples = {label: question.sample(label) for label in series}
    known = [sample for sample in samples.values() if sample is not None]
    if len(known) < len(series):
        return question.missing([label for label, sample in samples.items() if sample is None])
    decision = turns(known)
    steps = " → ".join(map(question.text, known))
    return [question.part(series, decision._replace(evidence=f"{steps}; {decision.evidence}"))]


def falling_attack(question: Question) -> list[Part]:
    parts = []
    for label in question.labels("first"):
        found = [question.sample(label, str(attack)) for attack in question.entry["series"]]
        known = [sample for sample in found if sample is not None]
        if len(known) < len(found):
            parts += question.missing([label], str(question.entry["series"][0]))
        else:
            decision = _steps(question, known, -1)
            evidence = f"{question.name(label)}: {decision.evidence}"
            parts.append(question.part([label], decision._replace(evidence=evidence)))
    return parts


def _steps(question: Question, samples: Sequence[Sample], direction: int) -> Decision:
    decision = trend(samples, direction)
    steps = " → ".join(map(question.text, samples))
    return decision._replace(evidence=f"{steps}; {decision.evidence}")


def peaks(question: Question) -> list[Part]:
    """Each expectation of the claim has its methods, number of peaks and checkpoint."""
    parts = []
    for expected in question.entry["expected"]:
        wanted, checkpoint = int(expected["peaks"]), str(expected["checkpoint"])
        one = {"first": expected["first"], "checkpoint": checkpoint, "measure": "margin_peaks"}
        asked = replace(question, entry={**question.entry, **one})
        for label in asked.labels("first"):
            sample = asked.sample(label)
            if sample is None:
                parts += asked.missing([label])
            else:
                counts = ", ".join(f"{count:.0f}" for count in sample.values)
                evidence = f"{question.name(label)}, {checkpoint}: peaks by seed {counts}, claimed {wanted}"
                verdict = _unanimous([count == wanted for count in sample.values])
                parts.append(asked.part([label], Decision(verdict, evidence)))
    return parts


def _unanimous(shown: Sequence[bool]) -> Verdict:
    if len(shown) < 2 or len(set(shown)) > 1:
        return "undecided"
    return "holds" if shown[0] else "does not hold"
