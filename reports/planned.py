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
    first: dict[tuple[str, ...], str] = {}
    found = {}
    for label in sorted(planned, key=lambda one: one in tuned):
        trials = tuple(one.trial for one in planned[label])
        if all(trials) and first.setdefault(trials, label) != label:
            found[label] = first[trials]
    return found


@cache
def trains_on(method: str) -> str:
    """Of a manifest that was written before it said this itself: the method is asked, if it is known here."""
    try:
        return composition.method_of(method).trains_on
    except ValueError:
        return "attacked"
