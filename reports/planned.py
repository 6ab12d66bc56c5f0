"""One training that a study consists of, as a report sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

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
