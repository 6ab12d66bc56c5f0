"""How samples decide one part of a claim, whatever the part is about.

`Significant` is Welch's t-test over seeds, two-sided, at 5 %. A `Decision` holds only if that was shown: what is merely
not contradicted is undecided. Where all of several must be shown each is tested by itself (their intersection); where
one of several is enough Holm corrects over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal, NamedTuple

from reports.statistics import ALPHA, Comparison, Sample, compare, holm
from reports.tables.table import p_text, signed

Verdict = Literal["holds", "does not hold", "undecided", "not run"]
NOTHING = Sample(0.0, 0.0, 2)  # compared with it, Welch's test is Student's for one sample


class Decision(NamedTuple):
    verdict: Verdict
    evidence: str
    p: float | None = None  # behind the verdict; None where no test was made
    remarks: tuple[str, ...] = ()  # what else is to be known: they stand after all that was tested


def differs(one: Sample, two: Sample, direction: int) -> Decision:
    """`one` is significantly higher (direction 1) or lower (-1)."""
    result = compare(one, two)
    return Decision(_by_sign(result, direction), shown(result), result.welch)


def not_worse(one: Sample, two: Sample, within: float) -> Decision:
    """Significantly above `two` less the margin; refuted only below it: what lies within it counts as not worse."""
    above = _beyond(one, two, -within)
    against = "" if above.welch is None else f", {_p(above.welch)} against {-within:.3g}"
    result = compare(one, two)
    return Decision(_by_sign(above, 1), shown(result) + _interval(result) + against, above.welch)


def not_less(one: Sample, two: Sample, share: float) -> Decision:
    """As `not_worse`, the margin a share of `two`."""
    return not_worse(one, two, share * abs(two.mean))


def same(one: Sample, two: Sample, share: float) -> Decision:
    """The 95 % interval of the difference lies within this share of `two`; refuted if it lies outside."""
    result, margin = compare(one, two), share * abs(two.mean)
    verdict, p = _between(one, two, -margin, margin)
    return Decision(verdict, shown(result) + _interval(result), p)


def in_range(one: Sample, two: Sample | None, low: float, high: float) -> Decision:
    """`one`, or its difference to `two`, by its 95 % interval."""
    result = compare(one, two or NOTHING)
    if result.low is None or result.high is None:
        side = "inside" if _inside(result.difference, low, high) else "outside"
        return Decision("undecided", f"{side} the range, but no spread is known, so no test")
    verdict, p = _between(one, two or NOTHING, low, high)
    return Decision(verdict, _interval(result).removeprefix(", "), p)


def gain_in_range(one: Sample, two: Sample, low: float, high: float) -> Decision:
    """Significantly above `two`, by an amount inside the range; refuted if its 95 % interval lies outside.

    The ends of such a range are themselves measured gains: no interval around them lies inside it.
    """
    result = compare(one, two)
    evidence = shown(result) + _interval(result)
    outside, p = _between(one, two, low, high)
    if outside == "does not hold":
        return Decision("does not hold", evidence, p)
    holds = _by_sign(result, 1) == "holds" and _inside(result.difference, low, high)
    return Decision("holds" if holds else "undecided", evidence, result.welch)


def turns(samples: Sequence[Sample]) -> Decision:
    """A later one is significantly below an earlier one; refuted if every step rises significantly."""
    pairs = [(early, late) for late in range(len(samples)) for early in range(late)]
    results = [compare(samples[late], samples[early]) for early, late in pairs]
    back = _smallest_contrary(results, 1)
    evidence = "no later value below an earlier one" if back is None else f"the clearest fall: {_p(back)} after Holm"
    if back is not None and back < ALPHA:
        return Decision("holds", evidence, back)
    steps = [compare(after, before) for before, after in pairwise(samples)]
    if all(_by_sign(step, 1) == "holds" for step in steps):
        return Decision("does not hold", evidence, max(step.welch for step in steps if step.welch is not None))
    return Decision("undecided", evidence, back)


def trend(samples: Sequence[Sample], direction: int) -> Decision:
    """Every step goes the claimed way by the means, the whole way is significant, and no step back is."""
    steps = [compare(after, before) for before, after in pairwise(samples)]
    whole = compare(samples[-1], samples[0])
    evidence = f"from the first to the last {shown(whole)}"
    back = _smallest_contrary(steps, direction)
    if back is not None and back < ALPHA:
        return Decision("does not hold", f"{evidence}; a step the other way: {_p(back)} after Holm", back)
    straight = all(step.difference * direction > 0 for step in steps)
    return Decision(
        "holds" if straight and _by_sign(whole, direction) == "holds" else "undecided", evidence, whole.welch
    )


def best(one: Sample, rivals: Sequence[Sample], direction: int) -> tuple[Decision, int]:
    """Significantly beyond every rival; refuted by a single one that is significantly beyond it.

    With the place of the rival that speaks most against it, whose numbers are the evidence.
    """
    results = [compare(one, rival) for rival in rivals]
    hardest = max(range(len(results)), key=lambda place: _doubt(results[place], direction))
    evidence = shown(results[hardest])
    beaten = _smallest_contrary(results, direction)
    if beaten is not None and len(rivals) > 1:
        evidence += f", {p_text(beaten)} after Holm over the rivals"
    if beaten is not None and beaten < ALPHA:
        return Decision("does not hold", evidence, beaten), hardest
    all_beaten = all(_by_sign(result, direction) == "holds" for result in results)
    weakest = max((result.welch for result in results if result.welch is not None), default=None)
    return Decision("holds" if all_beaten else "undecided", evidence, weakest), hardest


def shown(result: Comparison) -> str:
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


def _beyond(one: Sample, two: Sample, offset: float) -> Comparison:
    """`one` against `two` moved by the offset."""
    return compare(one, replace(two, mean=two.mean + offset, values=()))


def _between(one: Sample, two: Sample, low: float, high: float) -> tuple[Verdict, float | None]:
    """Whether the 95 % interval of the difference lies inside or outside; both bounds must be cleared."""
    above, below = _beyond(one, two, low), _beyond(one, two, high)
    for bound, direction in ((above, 1), (below, -1)):
        if _by_sign(bound, direction) == "does not hold":
            return "does not hold", bound.welch
    inside = _by_sign(above, 1) == _by_sign(below, -1) == "holds"
    known = [bound.welch for bound in (above, below) if bound.welch is not None]
    return ("holds" if inside else "undecided"), max(known, default=None)


def _inside(difference: float, low: float, high: float) -> bool:
    """Differences of printed means are not exact in their last bits."""
    return low <= round(difference, 6) <= high


def _smallest_contrary(results: Sequence[Comparison], direction: int) -> float | None:
    """Of those against the direction, after Holm over all: one is enough to refute."""
    corrected = holm([result.welch for result in results])
    contrary = [
        p for result, p in zip(results, corrected, strict=True) if p is not None and result.difference * direction < 0
    ]
    return min(contrary, default=None)


def _doubt(result: Comparison, direction: int) -> float:
    """One-sided p of the claimed direction; what cannot be tested comes last."""
    if result.welch is None:
        return -1.0
    return result.welch / 2 if result.difference * direction > 0 else 1 - result.welch / 2
