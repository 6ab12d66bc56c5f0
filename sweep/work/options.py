"""How a study is run, apart from what it is. Loads no torch and no ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunOptions:
    """None of it moves a number."""

    address: str | None = None
    data_dir: str | Path = "data"
    yes: bool = False
    progress: bool = True
    budget: str | None = None
    retry_failed: bool = False
    out: Path | None = Path("reports")
    loggers: tuple[str, ...] = ("tensorboard",)
    verbose: bool = False
    wait_for_nodes: float = 300.0  # seconds: to answer the preflight or, where a cluster scales, to come up
    command: str | None = None  # what records and messages say to type again; that of the process by default
    go_on: str | None = None  # what a message says to type where another command than a run's goes on from here
