"""The words for a column that a search tuned."""

from __future__ import annotations

from sweep.store.records.search import SearchRecord


def tuning_text(record: SearchRecord | None) -> str:
    """Return how a search tuned a column; `record` is None if the search has no record."""
    if record is None:
        return "tuned by a search"
    seeds = record.all_seeds
    seeds_text = f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
    return f"tuned by a search of {len(record.candidates)} candidates with {seeds_text}"
