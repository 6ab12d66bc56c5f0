"""Seeds that `sweep.decide` added one after the other. Tables and tests for a fixed number of seeds leave them out.

Each was added because of what earlier seeds had shown. A test that ignores this errs too often, and a mean over such
seeds is biased towards the decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from sweep import studies
from sweep.listing import seed_list
from sweep.store.records.decision import DecisionRecord

INITIAL_SEEDS = 2  # seeds that precede the first look, where the study's own seeds are unknown


def added_seeds(decisions: Iterable[DecisionRecord], study: str, label: str, trials: Mapping[int, str]) -> set[int]:
    """Return the seeds that decisions about the present trials of one label added.

    trials: maps each seed to the label's trial with that seed.
    """
    added: set[int] = set()
    for record in decisions:
        if record.study != study or label not in (record.first, record.second):
            continue
        side = int(label == record.second)
        pairs = zip(record.seeds, record.trials, strict=True)
        if any(trials.get(seed, "")[:16] == pair[side][:16] for seed, pair in pairs):
            added.update(_infer_added(record) if record.added is None else record.added.get(label, ()))
    return added


def _infer_added(record: DecisionRecord) -> set[int]:
    """Return the seeds added by a decision whose record is too old to list them."""
    initial = _shipped_seeds(record.study) or record.seeds[:INITIAL_SEEDS]
    return {*record.seeds, *record.left_out}.difference(initial)


@cache
def _shipped_seeds(study: str) -> tuple[int, ...]:
    if study not in studies.shipped():
        return ()
    from sweep.studies.written import written_study

    return tuple(written_study(study).seeds)


def note(planned: Iterable[tuple[int, ...]]) -> str:
    """Return the note for tables of labels that have added seeds.

    planned: the planned seeds of each label.
    """
    distinct = set(planned)
    seeds = f", {seed_list(next(iter(distinct)))}" if len(distinct) == 1 and next(iter(distinct)) else ""
    return (
        f"Means and tests use the seeds planned by the study{seeds}; seeds added by sweep.decide are judged by its own "
        "test."
    )
