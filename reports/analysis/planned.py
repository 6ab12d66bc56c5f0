"""The trainings that a study plans, and labels that share the very same trainings."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from trainers import composition

LOST = ("collapsed", "failed")


class Planned(NamedTuple):
    """A planned training of one label, with what became of it."""

    seed: int
    trial: str
    status: str
    last_epoch: dict[str, Any]


def statuses_together(first: Iterable[Planned], second: Iterable[Planned]) -> list[str]:
    """Return one status per seed of the first label, for a measure that needs the second label's training too.

    A seed is lost if either training is lost, and done only if both are done.
    """
    second_statuses = {planned.seed: planned.status for planned in second}
    statuses = []
    for planned in first:
        both = planned.status, second_statuses.get(planned.seed, "missing")
        usual = "done" if set(both) == {"done"} else "missing"
        statuses.append(next((status for status in both if status in LOST), usual))
    return statuses


def twins(planned: Mapping[str, Sequence[Planned]], tuned: Container[str]) -> dict[str, str]:
    """Return, for each label that shows another label's trainings, that other label.

    A search that chose the study's own values makes such a label. A label without a search stands for those with one.
    Labels that wait for a search have no trainings yet.
    """
    originals: dict[str, str] = {}
    owners: dict[str, str] = {}  # trial -> the first label that has it
    for label in sorted(planned, key=lambda name: name in tuned):
        trials = [training.trial for training in planned[label] if training.trial]
        candidates = (owners[trial] for trial in trials if trial in owners)
        original = next((name for name in candidates if _agree(planned[label], planned[name])), None)
        if original is not None:
            originals[label] = original
        else:
            owners |= {trial: label for trial in trials if trial not in owners}
    return originals


def _agree(first: Iterable[Planned], second: Iterable[Planned]) -> bool:
    """Return whether two labels have the same trials at all seeds that both have."""
    trials = {planned.seed: planned.trial for planned in second}
    return all(planned.trial == trials.get(planned.seed, planned.trial) for planned in first)


@cache
def trains_on(method: str) -> str:
    """Return the images that a method trains on, for manifests written before 0.2, which do not say it."""
    try:
        return composition.method_of(method).trains_on
    except ValueError:
        return "attacked"
