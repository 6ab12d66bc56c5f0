"""How a search tuned a column, in words."""

from __future__ import annotations

from sweep.store.records.search import SearchRecord


def tuning_text(record: SearchRecord | None) -> str:
    if record is None:
        return "tuned by a search"
    seeds = record.all_seeds
    named = f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
    return f"tuned by a search of {len(record.candidates)} candidates with {named}"
