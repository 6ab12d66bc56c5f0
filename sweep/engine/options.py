"""The options of a run, as opposed to its study. Importing this loads neither torch nor Ray."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import UserError

# The package that each logger needs.
LOGGERS = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


def check_loggers(names: Sequence[str]) -> None:
    """Raise UserError for loggers that are unknown or not installed, without importing them."""
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
    """Options of a run. None of them changes a result."""

    address: str | None = None
    data_dir: str | Path = "data"
    yes: bool = False
    progress: bool = True
    budget: str | None = None
    retry_failed: bool = False
    out: Path | None = Path("reports")
    loggers: tuple[str, ...] = ("tensorboard",)
    verbose: bool = False
    local: bool = False  # without Ray, one piece after the other in this process
    dashboard: bool = False  # Ray's dashboard, for a run on this machine
    wait_for_nodes: float = 300.0  # seconds for nodes to answer the preflight or, on a cluster that scales, to come up
    command: str | None = None  # the command that records and messages repeat; by default, that of this process
    go_on: str | None = None  # the command to continue with, if it is not a run's own
