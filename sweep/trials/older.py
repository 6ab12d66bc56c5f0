"""What a store still holds of earlier numerics versions, in one line."""

from __future__ import annotations

import re
from collections import Counter

from sweep.store.base import Store
from sweep.store.records.trial import TrialRecord
from sweep.trials.identity import NUMERICS_VERSION

_NUMERICS = re.compile(rb'"numerics":(\d+)')  # read off the bytes: thousands of records would take minutes to parse


def older_note(store: Store) -> str | None:
    """None where all trials are of this version; what is broken counts as nothing."""
    found: Counter[int] = Counter()
    for _, data in store.read_many(store.record_paths(TrialRecord)):
        written = _NUMERICS.search(data)
        if written and int(written[1]) < NUMERICS_VERSION:
            found[int(written[1])] += 1
    if not found:
        return None
    versions = ", ".join(str(version) for version in sorted(found))
    return (
        f"store {store.uri} holds {found.total()} trials of numerics version {versions}; this version makes version "
        f"{NUMERICS_VERSION} and trains anew: the older ones stay as they are and are mixed with nothing, and once no "
        "study names them `sweep gc` frees their weights"
    )
