"""Which driver begins with which trials. Leases keep drivers apart; this keeps them from asking for the same ones."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence


def rank_among(drivers: Sequence[str], me: str) -> Callable[[str], float]:
    """Of a trial: 0 where it is this driver's to begin, otherwise in which order it helps with the others' trials.

    Every trial belongs to the driver that draws the highest number for it: who comes or goes moves only its own trials.
    """

    def draw(driver: str, trial: str) -> float:
        digest = hashlib.blake2b(f"{driver} {trial}".encode(), digest_size=7).digest()
        return (1 + int.from_bytes(digest, "big")) / 2**56

    @functools.cache
    def rank(trial: str) -> float:
        mine = draw(me, trial)
        return 0.0 if all(draw(other, trial) <= mine for other in drivers if other != me) else mine

    return rank
