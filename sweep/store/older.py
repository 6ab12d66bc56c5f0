"""One-line messages about trials of other numerics versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sweep.commands import spelled, store_words
from sweep.store.base import Store, TrialLook
from sweep.store.numerics import NUMERICS_VERSION


def older_note(store: Store, looks: Iterable[TrialLook]) -> str | None:
    """Return a message about trials of older numerics versions, or None if there are none. Skip broken records."""
    found = Counter(one.numerics for one in looks if one.state != "broken" and one.numerics < NUMERICS_VERSION)
    if not found:
        return None
    held = f"store {store.uri} holds {found.total()} trials of {versions_text(found)}"
    return (
        f"{held}: the older ones stay as they are and are mixed with nothing, and once no study names them "
        f"`{spelled('sweep.gc', *store_words(store.uri))}` frees their weights"
    )


def versions_text(found: Iterable[int]) -> str:
    """Return text that names older numerics versions and says that this version trains anew."""
    versions = ", ".join(str(version) for version in sorted(found))
    return f"numerics version {versions}; this version makes version {NUMERICS_VERSION} and trains anew"
