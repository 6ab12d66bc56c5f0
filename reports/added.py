"""Seeds that `sweep.decide` added one after the other: neither tables nor tests of a fixed number of seeds use them.

Whether there are more of them hung on what the earlier ones had shown: such a test errs too often, and a mean leans
towards the decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from sweep import studies
from sweep.listing import seed_list
from sweep.store.records.decision import DecisionRecord

FIRST_LOOK = 2  # seeds that a claim of an unknown study started with: no look came before them


def added_seeds(decisions: Iterable[DecisionRecord], study: str, label: str, trials: Mapping[int, str]) -> set[int]:
    """Of one label, by the decisions that were made of its present trials, which are given by seed."""
    found: set[int] = set()
    for record in decisions:
        if record.study != study or label not in (record.first, record.second):
            continue
        place = int(label == record.second)
        pairs = zip(record.seeds, record.trials, strict=True)
        if any(trials.get(seed, "")[:16] == pair[place][:16] for seed, pair in pairs):
            found.update(_before_it_was_said(record) if record.added is None else record.added.get(label, ()))
    return found


def _before_it_was_said(record: DecisionRecord) -> set[int]:
    own = _shipped_seeds(record.study) or record.seeds[:FIRST_LOOK]
    return {*record.seeds, *record.left_out}.difference(own)


@cache
def _shipped_seeds(study: str) -> tuple[int, ...]:
    if study not in studies.shipped():
        return ()
    from sweep.studies.written import written_study

    return tuple(written_study(study).seeds)


def note(planned: Iterable[tuple[int, ...]]) -> str:
    """For what shows numbers of labels with such seeds; `planned` are their other seeds, label by label."""
    known = set(planned)
    named = f", {seed_list(next(iter(known)))}" if len(known) == 1 and next(iter(known)) else ""
    return (
        f"Means and tests use the seeds planned by the study{named}; seeds added by sweep.decide are judged by its own "
        "test."
    )
