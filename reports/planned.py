"""One training that a study consists of, as a report sees it, and labels that consist of the very same ones."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from trainers import composition

LOST = ("collapsed", "failed")


class Planned(NamedTuple):
    seed: int
    trial: str
    status: str
    last_epoch: dict[str, Any]


def statuses_together(one: Iterable[Planned], other: Iterable[Planned]) -> list[str]:
    """Of each seed of the first: lost where either training is, done only where both are."""
    beside = {planned.seed: planned.status for planned in other}
    found = []
    for planned in one:
        both = planned.status, beside.get(planned.seed, "missing")
        found.append(
            next((status for status in both if status in LOST), "done" if set(both) == {"done"} else "missing")
        )
    return found


def twins(planned: Mapping[str, Sequence[Planned]], tuned: Container[str]) -> dict[str, str]:
    """Label -> the one whose very trainings it shows, such as that of a search which chose the study's own values.

    Of such labels the first without a search stands for all. What waits for a search has no trainings yet.
    """
    found: dict[str, str] = {}
    first: dict[str, str] = {}  # trial -> the label that it was met at
    for label in sorted(planned, key=lambda one: one in tuned):
        trials = [one.trial for one in planned[label] if one.trial]
        met = (first[trial] for trial in trials if trial in first)
        other = next((name for name in met if _same_where_both(planned[label], planned[name])), None)
        if other is not None:
            found[label] = other
        else:
            first |= {trial: label for trial in trials if trial not in first}
    return found


def _same_where_both(one: Iterable[Planned], other: Iterable[Planned]) -> bool:
    """One of them may have further seeds, as of a claim that was asked about it alone."""
    known = {planned.seed: planned.trial for planned in other}
    return all(planned.trial == known.get(planned.seed, planned.trial) for planned in one)


@cache
def trains_on(method: str) -> str:
    """Of a manifest that was written before it said this itself: the method is asked, if it is known here."""
    try:
        return composition.method_of(method).trains_on
    except ValueError:
        return "attacked"
