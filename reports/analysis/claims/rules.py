"""The rules by which samples decide one part of a claim, whatever the part is about.

"Significant" means Welch's t-test over seeds, two-sided, at 5 %. A judgement holds only if that was shown; what is
merely not contradicted is undecided. If all of several parts must hold, each is tested by itself (an intersection
test). If one of several is enough, Holm corrects over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal, NamedTuple

from reports.analysis.statistics import ALPHA, Comparison, Sample, compare, holm
from reports.tables.table import p_text, signed

Verdict = Literal["holds", "does not hold", "undecided", "not run"]
NOTHING = Sample(0.0, 0.0, 2)  # compared with it, Welch's test is Student's for one sample


class Judgement(NamedTuple):
    """The verdict on one part of a claim, with its evidence."""

    verdict: Verdict
    evidence: str
    p: float | None = None  # behind the verdict; None where no test was made
    remarks: tuple[str, ...] = ()  # further facts, shown after everything that was tested


def differs(first: Sample, second: Sample, direction: int) -> Judgement:
    """Judge whether `first` is significantly higher (direction 1) or lower (-1) than `second`."""
    result = compare(first, second)
    return Judgement(_by_sign(result, direction), comparison_text(result), result.welch)


def not_worse(first: Sample, second: Sample, within: float) -> Judgement:
    """Judge whether `first` is significantly above `second` minus the margin.

    Only a value significantly below that refutes it: what lies within the margin counts as not worse.
    """
    above = _beyond(first, second, -within)
    against = "" if above.welch is None else f", {_p(above.welch)} against {-within:.3g}"
    result = compare(first, second)
    return Judgement(_by_sign(above, 1), comparison_text(result) + _interval(result) + against, above.welch)


def not_less(first: Sample, second: Sample, share: float) -> Judgement:
    """Judge like `not_worse`, with a share of `second` as the margin."""
    return not_worse(first, second, share * abs(second.mean))


def same(first: Sample, second: Sample, share: float) -> Judgement:
    """Judge whether the difference is at most this share of `second`.

    Its 95 % interval must lie within that margin; one that lies outside refutes it.
    """
    result, margin = compare(first, second), share * abs(second.mean)
    verdict, p = _between(first, second, -margin, margin)
    return Judgement(verdict, comparison_text(result) + _interval(result), p)


def in_range(first: Sample, second: Sample | None, low: float, high: float) -> Judgement:
    """Judge whether `first`, or its difference to `second`, is in the range.

    Its 95 % interval must lie inside; one that lies outside refutes it.
    """
    result = compare(first, second or NOTHING)
    if result.low is None or result.high is None:
        side = "inside" if _inside(result.difference, low, high) else "outside"
        return Judgement("undecided", f"{side} the range, but no spread is known, so no test")
    verdict, p = _between(first, second or NOTHING, low, high)
    return Judgement(verdict, _interval(result).removeprefix(", "), p)


def gain_in_range(first: Sample, second: Sample, low: float, high: float) -> Judgement:
    """Judge whether `first` is significantly above `second`, by an amount inside the range.

    A 95 % interval of the difference that lies outside refutes it. The ends of the range are measured gains themselves,
    so no interval around them could lie inside it.
    """
    result = compare(first, second)
    evidence = comparison_text(result) + _interval(result)
    outside, p = _between(first, second, low, high)
    if outside == "does not hold":
        return Judgement("does not hold", evidence, p)
    holds = _by_sign(result, 1) == "holds" and _inside(result.difference, low, high)
    return Judgement("holds" if holds else "undecided", evidence, result.welch)


def turns(samples: Sequence[Sample]) -> Judgement:
    """Judge whether a later value is significantly below an earlier one. Significant rises at every step refute it."""
    pairs = [(early, late) for late in range(len(samples)) for early in range(late)]
    results = [compare(samples[late], samples[early]) for early, late in pairs]
    back = _smallest_contrary(results, 1)
    evidence = "no later value below an earlier one" if back is None else f"the clearest fall: {_p(back)} after Holm"
    if back is not None and back < ALPHA:
        return Judgement("holds", evidence, back)
    steps = [compare(after, before) for before, after in pairwise(samples)]
    if all(_by_sign(step, 1) == "holds" for step in steps):
        return Judgement("does not hold", evidence, max(step.welch for step in steps if step.welch is not None))
    return Judgement("undecided", evidence, back)


def trend(samples: Sequence[Sample], direction: int) -> Judgement:
    """Judge whether the values go one way: up (direction 1) or down (-1).

    The means must go that way at every step, and significantly from first to last. A significant step back refutes it.
    """
    steps = [compare(after, before) for before, after in pairwise(samples)]
    whole = compare(samples[-1], samples[0])
    evidence = f"from the first to the last {comparison_text(whole)}"
    back = _smallest_contrary(steps, direction)
    if back is not None and back < ALPHA:
        return Judgement("does not hold", f"{evidence}; a step the other way: {_p(back)} after Holm", back)
    straight = all(step.difference * direction > 0 for step in steps)
    return Judgement(
        "holds" if straight and _by_sign(whole, direction) == "holds" else "undecided", evidence, whole.welch
    )


def best(candidate: Sample, rivals: Sequence[Sample], direction: int) -> tuple[Judgement, int]:
    """Judge whether the candidate is significantly beyond every rival. One rival significantly beyond it refutes that.

    Return the judgement and the index of the rival that speaks most against the claim; its numbers are the evidence.
    """
    results = [compare(candidate, rival) for rival in rivals]
    hardest = max(range(len(results)), key=lambda index: _doubt(results[index], direction))
    evidence = comparison_text(results[hardest])
    beaten = _smallest_contrary(results, direction)
    if beaten is not None and len(rivals) > 1:
        evidence += f", {p_text(beaten)} after Holm over the rivals"
    if beaten is not None and beaten < ALPHA:
        return Judgement("does not hold", evidence, beaten), hardest
    all_beaten = all(_by_sign(result, direction) == "holds" for result in results)
    weakest = max((result.welch for result in results if result.welch is not None), default=None)
    return Judgement("holds" if all_beaten else "undecided", evidence, weakest), hardest


def comparison_text(result: Comparison) -> str:
    """Return difference and p-values in words, or why there is no test."""
    if result.welch is None:
        return f"({result.undefined})"
    decimals = 2 if abs(result.difference) < 1 else 1
    return f"Δ = {signed(result.difference, decimals)}, {_p(result.student)} Student, {p_text(result.welch)} Welch"


def _interval(result: Comparison) -> str:
    return "" if result.low is None else f", 95 % [{result.low:.2f}, {result.high:.2f}]"


def _p(p: float | None) -> str:
    return f"p = {p_text(p)}".replace("= <", "< ")


def _by_sign(result: Comparison, direction: int) -> Verdict:
    if not result.significant:
        return "undecided"
    return "holds" if result.difference * direction > 0 else "does not hold"


def _beyond(first: Sample, second: Sample, offset: float) -> Comparison:
    """Compare `first` with `second` moved by the offset."""
    return compare(first, replace(second, mean=second.mean + offset, values=()))


def _between(first: Sample, second: Sample, low: float, high: float) -> tuple[Verdict, float | None]:
    """Return whether the 95 % interval of the difference lies inside or outside the range, with its p.

    Inside means that both bounds are cleared significantly.
    """
    above, below = _beyond(first, second, low), _beyond(first, second, high)
    for bound, direction in ((above, 1), (below, -1)):
        if _by_sign(bound, direction) == "does not hold":
            return "does not hold", bound.welch
    inside = _by_sign(above, 1) == _by_sign(below, -1) == "holds"
    p_values = [bound.welch for bound in (above, below) if bound.welch is not None]
    return ("holds" if inside else "undecided"), max(p_values, default=None)


def _inside(difference: float, low: float, high: float) -> bool:
    """Return whether a difference is in the range. Rounded, because printed means are inexact in their last bits."""
    return low <= round(difference, 6) <= high


def _smallest_contrary(results: Sequence[Comparison], direction: int) -> float | None:
    """Return the smallest p against the direction, after Holm over all: one such result refutes."""
    corrected = holm([result.welch for result in results])
    contrary = [
        p for result, p in zip(results, corrected, strict=True) if p is not None and result.difference * direction < 0
    ]
    return min(contrary, default=None)


def _doubt(result: Comparison, direction: int) -> float:
    """Return the one-sided p of the claimed direction; -1 if there is no test, so that it comes last."""
    if result.welch is None:
        return -1.0
    return result.welch / 2 if result.difference * direction > 0 else 1 - result.welch / 2
