"""One training that a study consists of, as a report sees it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Planned(NamedTuple):
    seed: int
    trial: str
    status: str
    last_epoch: dict[str, Any]
