"""How a study is run, apart from what it is. Loads no torch and no ray."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import UserError

# The package of each logger.
LOGGERS = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


def check_loggers(names: Sequence[str]) -> None:
    """Raise UserError for loggers that are unknown or not installed, without loading them."""
    unknown = [name for name in names if name not in LOGGERS]
    if unknown:
        raise UserError(f"unknown logger {', '.join(unknown)}; known: {', '.join(LOGGERS)}, none")
    for name in names:
        package = LOGGERS[name]
        if package not in sys.modules and importlib.util.find_spec(package) is None:
            raise not_installed(name)


def not_installed(logger: str) -> UserError:
    return UserError(f"logger {logger} is not installed: pip install 'robustsweep[{logger}]'")


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
