"""What a store still holds of earlier numerics versions, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sweep.commands import spelled, store_words
from sweep.store.base import Store, TrialLook
from sweep.trials.numerics import NUMERICS_VERSION


def older_note(store: Store, looks: Iterable[TrialLook]) -> str | None:
    """None where all trials are of this version; what is broken counts as nothing."""
    found = Counter(one.numerics for one in looks if one.state != "broken" and one.numerics < NUMERICS_VERSION)
    if not found:
        return None
    versions = ", ".join(str(version) for version in sorted(found))
    return (
        f"store {store.uri} holds {found.total()} trials of numerics version {versions}; this version makes version "
        f"{NUMERICS_VERSION} and trains anew: the older ones stay as they are and are mixed with nothing, and once no "
        f"study names them `{spelled('sweep.gc', *store_words(store.uri))}` frees their weights"
    )
