"""Claims about a series of values: along a hyperparameter, from attack to attack, or the peaks of a histogram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reports.analysis.claims.question import ClaimPart, Question
from reports.analysis.claims.rules import Judgement, Verdict, trend, turns
from reports.analysis.statistics import Sample


def along(question: Question, direction: int) -> list[ClaimPart]:
    """Judge whether the values rise (direction 1) or fall (-1) along the claim's series of labels."""
    series = [str(label) for label in question.entry["series"]]
    question = question.with_shared(series)
    samples = [question.sample(label) for label in series]
    missing = [label for label, sample in zip(series, samples, strict=True) if sample is None]
    present = [sample for sample in samples if sample is not None]
    if missing:
        return question.missing(missing)
    return [question.part(series, _steps(question, present, direction))]


def not_monotone(question: Question) -> list[ClaimPart]:
    """Judge whether a later value of the claim's series falls below an earlier one."""
    series = [str(label) for label in question.entry["series"]]
    question = question.with_shared(series)
    samples = {label: question.sample(label) for label in series}
    present = [sample for sample in samples.values() if sample is not None]
    if len(present) < len(series):
        return question.missing([label for label, sample in samples.items() if sample is None])
    judgement = turns(present)
    steps = " → ".join(map(question.text, present))
    return [question.part(series, judgement._replace(evidence=f"{steps}; {judgement.evidence}"))]


def falling_attack(question: Question) -> list[ClaimPart]:
    """Judge, for each label, whether its accuracy falls from attack to attack."""
    parts = []
    for label in question.labels("first"):
        samples = [question.sample(label, str(attack)) for attack in question.entry["series"]]
        present = [sample for sample in samples if sample is not None]
        if len(present) < len(samples):
            parts += question.missing([label], str(question.entry["series"][0]))
        else:
            judgement = _steps(question, present, -1)
            evidence = f"{question.name(label)}: {judgement.evidence}"
            parts.append(question.part([label], judgement._replace(evidence=evidence)))
    return parts


def _steps(question: Question, samples: Sequence[Sample], direction: int) -> Judgement:
    judgement = trend(samples, direction)
    steps = " → ".join(map(question.text, samples))
    return judgement._replace(evidence=f"{steps}; {judgement.evidence}")


def peaks(question: Question) -> list[ClaimPart]:
    """Judge the number of margin peaks. Each expectation names its methods, number of peaks and checkpoint."""
    parts = []
    for expected in question.entry["expected"]:
        wanted, checkpoint = int(expected["peaks"]), str(expected["checkpoint"])
        entry = {"first": expected["first"], "checkpoint": checkpoint, "measure": "margin_peaks"}
        expectation = replace(question, entry={**question.entry, **entry})
        for label in expectation.labels("first"):
            sample = expectation.sample(label)
            if sample is None:
                parts += expectation.missing([label])
            else:
                counts = ", ".join(f"{count:.0f}" for count in sample.values)
                evidence = f"{question.name(label)}, {checkpoint}: peaks by seed {counts}, claimed {wanted}"
                verdict = _unanimous([count == wanted for count in sample.values])
                parts.append(expectation.part([label], Judgement(verdict, evidence)))
    return parts


def _unanimous(seeds: Sequence[bool]) -> Verdict:
    """Return the verdict of all seeds if they agree; undecided for a single seed."""
    if len(seeds) < 2 or len(set(seeds)) > 1:
        return "undecided"
    return "holds" if seeds[0] else "does not hold"
