"""What a claim asks of the numbers, one function per kind; each gives the claim's parts with verdict and evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from reports.departures import joined
from reports.layout import Rounding, p_text, signed
from reports.sources import Source
from reports.statistics import ALPHA, Sample, compare, interval

Verdict = Literal["holds", "does not hold", "undecided", "not run"]
MARGINS = Rounding(0, 3)


@dataclass(frozen=True)
class Part:
    where: str
    verdict: Verdict
    evidence: str
    departs: str = ""  # settings behind it that are not the paper's, in words

    @property
    def remark(self) -> str:
        return f"; ¶ {self.departs}" if self.departs else ""


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True)
class Question:
    source: Source
    entry: dict[str, Any]
    setting: str
    epsilon: str | None
    _departures: dict[str, dict[str, None]] = field(default_factory=dict)  # of the labels asked for so far

    @property
    def where(self) -> str:
        return self.setting + (f", ε = {self.epsilon}" if self.epsilon else "")

    def labels(self, role: str) -> list[str]:
        return [str(label) for label in listed(self.entry[role])]

    def sample(self, label: str, measure: str | None = None) -> Sample | None:
        """The first of the claim's measures that is known; `sum` is robust plus clean accuracy."""
        wanted = [measure] if measure else listed(self.entry["measure"])
        for name in wanted:
            if name == "sum":
                found = self.combined(label, "autoattack", "clean", 1)
            else:
                found = self.source.sample(self.setting, label, name, self.epsilon, self.entry.get("checkpoint"))
                self._note(label, name, self.epsilon, self.entry.get("checkpoint"))
            if found is not None:
                return found
        return None

    def combined(self, label: str, first: str, second: str, sign: int) -> Sample | None:
        for measure in (first, second):
            self._note(label, measure)
        return self.source.combined(self.setting, label, first, second, sign)

    def _note(self, label: str, measure: str, epsilon: str | None = None, checkpoint: str | None = None) -> None:
        known = self._departures.setdefault(label, {})
        known |= dict.fromkeys(self.source.departures(self.setting, label, measure, epsilon, checkpoint))

    def part(self, labels: Sequence[str], verdict: Verdict, evidence: str) -> Part:
        """Judged from the numbers of these labels."""
        found = {self.name(label): self._departures.get(label, {}) for label in labels}
        return Part(self.where, verdict, evidence, joined(found))

    def name(self, label: str) -> str:
        return self.source.display(self.setting, label)

    def text(self, sample: Sample) -> str:
        percent = self.entry.get("measure") not in ("margin", "margin_ratio") and "gradient" not in str(
            self.entry.get("measure")
        )
        return (Rounding() if percent else MARGINS).text(sample)

    def missing(self, labels: Sequence[str]) -> list[Part]:
        lacking = [self.name(label) for label in labels]
        return [Part(self.where, "not run", f"no numbers for {', '.join(lacking)}")]


def _pairs(question: Question, direction: int, judge_pair: Callable[..., Verdict] | None = None) -> list[Part]:
    parts = []
    for first in question.labels("first"):
        for second in question.labels("second"):
            one, two = question.sample(first), question.sample(second)
            if one is None or two is None:
                parts += question.missing([first] * (one is None) + [second] * (two is None))
                continue
            verdict, evidence = _compare(question, first, second, one, two, direction)
            parts.append(question.part([first, second], judge_pair(one, two) if judge_pair else verdict, evidence))
    return parts


def _compare(
    question: Question, first: str, second: str, one: Sample, two: Sample, direction: int
) -> tuple[Verdict, str]:
    result = compare(one, two)
    numbers = f"{question.name(first)} {question.text(one)}, {question.name(second)} {question.text(two)}"
    if result.welch is None:
        return "undecided", f"{numbers} ({result.undefined})"
    tests = f"p = {p_text(result.student)} Student, {p_text(result.welch)} Welch".replace("= <", "< ")
    decimals = 2 if abs(result.difference) < 1 else 1
    evidence = f"{numbers}: Δ = {signed(result.difference, decimals)}, {tests}"
    if result.welch >= ALPHA:
        return "undecided", evidence
    return ("holds" if result.difference * direction > 0 else "does not hold"), evidence


def _not_worse(one: Sample, two: Sample) -> Verdict:
    p = compare(one, two).welch
    if p is None:
        return "undecided"
    return "does not hold" if one.mean < two.mean and p < ALPHA else "holds"


def _same(one: Sample, two: Sample) -> Verdict:
    p = compare(one, two).welch
    return "undecided" if p is None else "holds" if p >= ALPHA else "does not hold"


def _extreme(question: Question, direction: int) -> list[Part]:
    """`first` is the best of all: significantly so, or at least not significantly behind."""
    parts = []
    for measure in [None, *question.entry.get("also", [])]:
        first = question.labels("first")[0]
        one = question.sample(first, measure)
        rivals = {label: question.sample(label, measure) for label in question.labels("second")}
        known = {label: sample for label, sample in rivals.items() if sample is not None}
        if one is None or not known:
            parts += question.missing([first] if one is None else list(rivals))
            continue
        closest = max(known, key=lambda label: direction * known[label].mean)
        verdict, evidence = _compare(question, first, closest, one, known[closest], direction)
        lacking = [question.name(label) for label in rivals if label not in known]
        if lacking:
            evidence += f"; without {', '.join(lacking)}"
            verdict = "undecided" if verdict == "holds" else verdict
        parts.append(question.part([first, *known], verdict, f"closest rival: {evidence}"))
    return parts


def _drop(question: Question) -> list[Part]:
    parts = []
    to = question.entry["to"]
    for first in question.labels("first"):
        (second,) = question.labels("second")
        for measure in listed(question.entry["measure"]):
            one = question.combined(first, measure, to, -1)
            two = question.combined(second, measure, to, -1)
            if one is not None and two is not None:
                verdict, evidence = _compare(question, first, second, one, two, 1)
                parts.append(question.part([first, second], verdict, f"loss from {measure} to {to}: {evidence}"))
                break
        else:
            parts += question.missing([first, second])
    return parts


def _range(question: Question) -> list[Part]:
    (first,) = question.labels("first")
    low, high = question.entry["low"], question.entry["high"]
    one = question.sample(first)
    if "second" in question.entry:
        (second,) = question.labels("second")
        two = question.sample(second)
        if one is None or two is None:
            return question.missing([first, second])
        result = compare(one, two)
        middle, bounds = result.difference, (result.low, result.high)
        shown = f"{question.name(first)} − {question.name(second)} = {signed(middle)}"
        labels = [first, second]
    else:
        if one is None:
            return question.missing([first])
        known = interval(one)
        middle, bounds = one.mean, known or (None, None)
        shown = f"{middle:.2f}"
        labels = [first]
    # Rounded printed means: 5.9 must count as inside [5.9, 12.2].
    inside = low - 1e-9 <= round(middle, 6) <= high + 1e-9
    if bounds[0] is None or bounds[1] is None:
        return [question.part(labels, "holds" if inside else "does not hold", f"{shown} (no spread known)")]
    apart = bounds[1] < low or bounds[0] > high
    verdict: Verdict = "holds" if inside else "does not hold" if apart else "undecided"
    return [question.part(labels, verdict, f"{shown}, 95 % [{bounds[0]:.2f}, {bounds[1]:.2f}]")]


def _trend(question: Question, direction: int) -> list[Part]:
    series = [str(label) for label in question.entry["series"]]
    samples = [question.sample(label) for label in series]
    lacking = [label for label, sample in zip(series, samples, strict=True) if sample is None]
    known = [sample for sample in samples if sample is not None]
    if lacking:
        return question.missing(lacking)
    return [question.part(series, *_steps(known, [question.text(sample) for sample in known], direction))]


def _falling_attack(question: Question) -> list[Part]:
    parts = []
    for label in question.labels("first"):
        found = [question.sample(label, str(attack)) for attack in question.entry["series"]]
        known = [sample for sample in found if sample is not None]
        if len(known) < len(found):
            parts += question.missing([label])
        else:
            verdict, steps = _steps(known, [question.text(sample) for sample in known], -1)
            parts.append(question.part([label], verdict, f"{question.name(label)}: {steps}"))
    return parts


def _steps(samples: Sequence[Sample], texts: Sequence[str], direction: int) -> tuple[Verdict, str]:
    """Every step goes the claimed way; a step the other way only counts against it when it is significant."""
    against, wrong = 0, 0
    for before, after in zip(samples, samples[1:], strict=False):
        if (after.mean - before.mean) * direction <= 0:
            wrong += 1
            p = compare(after, before).welch
            against += p is not None and p < ALPHA
    verdict: Verdict = "does not hold" if against else "undecided" if wrong else "holds"
    return verdict, " → ".join(texts)


def _least(question: Question) -> list[Part]:
    broken, checked = [], 0
    for label in question.entry["series"]:
        base = question.sample(label)
        for attack in question.entry["to"]:
            other = question.sample(label, str(attack))
            if base is None or other is None:
                continue
            checked += 1
            if other.mean < base.mean:
                broken.append(f"{question.name(label)} {attack} {question.text(other)} < {question.text(base)}")
    if not checked:
        return question.missing([str(label) for label in question.entry["series"]])
    evidence = f"{checked} comparisons" + (f"; against it: {'; '.join(broken)}" if broken else ", none against it")
    return [question.part(question.entry["series"], "does not hold" if broken else "holds", evidence)]


def _anticorrelated(question: Question) -> list[Part]:
    from scipy.stats import spearmanr

    pairs = [
        (question.sample(label), question.sample(label, question.entry["to"])) for label in question.entry["series"]
    ]
    known = [(one.mean, two.mean) for one, two in pairs if one is not None and two is not None]
    if len(known) < 5:
        return question.missing([str(label) for label in question.entry["series"]])
    result = spearmanr(*np.array(known).T)
    rho, p = float(result.statistic), float(result.pvalue)
    verdict: Verdict = "undecided" if not p < ALPHA else "holds" if rho < 0 else "does not hold"
    return [
        question.part(
            question.entry["series"], verdict, f"Spearman's ρ = {rho:.2f} over {len(known)} methods, p = {p_text(p)}"
        )
    ]


KINDS: dict[str, Callable[[Question], list[Part]]] = {
    "greater": lambda question: _pairs(question, 1),
    "lower": lambda question: _pairs(question, -1),
    "not_worse": lambda question: _pairs(question, 1, _not_worse),
    "same": lambda question: _pairs(question, 1, _same),
    "highest": lambda question: _extreme(question, 1),
    "lowest": lambda question: _extreme(question, -1),
    "drop": _drop,
    "range": _range,
    "rising": lambda question: _trend(question, 1),
    "falling": lambda question: _trend(question, -1),
    "falling_attack": _falling_attack,
    "least": _least,
    "anticorrelated": _anticorrelated,
}
