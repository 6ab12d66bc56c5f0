"""Checks of a run's options before anything starts, for dry runs too. Importing this loads neither torch nor Ray."""

from __future__ import annotations

import errno
import importlib.util
import math
import os
from pathlib import Path

from sweep.cluster.session import check_address
from sweep.engine.options import RunOptions, check_loggers
from sweep.errors import UserError
from sweep.studies.model import Study
from sweep.trials.cost import budget_hours
from trainers.data import needs_files

DASHBOARD_PACKAGES = ("aiohttp_cors", "opencensus", "prometheus_client")  # installed by ray[default]
DATA_DIR = "data"  # created when a data set is downloaded


def check_run(study: Study, options: RunOptions) -> None:
    """Raise UserError for the first option of a run that cannot work. Nothing is written, and no connection is made."""
    budget_hours(options.budget)
    check_wait(options.wait_for_nodes)
    check_loggers(options.loggers)
    check_engine(options)
    if options.address is not None:
        check_address(options.address)
    if options.out not in (None, RunOptions.out):  # a dry run may read a store in a place that is not writable
        _check_out(options.out)
    _check_data_dir(study, options.data_dir)


def check_engine(options: RunOptions) -> None:
    """Raise UserError for Ray options without Ray, or options of a private Ray where an existing one is joined."""
    if options.local and options.address is not None:
        raise UserError(f"--local runs without Ray: leave out --address {options.address}, or --local")
    if options.local and options.dashboard:
        raise UserError("--local runs without Ray, whose dashboard it cannot show: leave out --dashboard, or --local")
    if options.local and (others := set(options.loggers) - set(RunOptions.loggers)):
        raise UserError(f"--local runs without Ray and its loggers: leave out --logger {','.join(sorted(others))}")
    if options.dashboard and options.address is not None:
        raise UserError(
            f"--dashboard is for this machine; the cluster at {options.address} has a dashboard of its own, "
            "usually http://HEAD:8265"
        )
    if options.dashboard and not all(importlib.util.find_spec(package) for package in DASHBOARD_PACKAGES):
        raise UserError("--dashboard needs ray[default]: pip install 'robustsweep[cluster]'")


def check_wait(seconds: float | None) -> None:
    if seconds is not None and not math.isfinite(seconds):
        raise UserError(f"--wait-for-nodes {seconds}: must be a number of seconds such as 900")


def _check_out(out: Path) -> None:
    """Raise the error that `make_folder` would raise, without creating the folder."""
    parent = _nearest(out)
    if not parent.is_dir():
        fault = errno.EEXIST if parent == out.absolute() else errno.ENOTDIR
    elif not os.access(parent, os.W_OK | os.X_OK):
        fault = errno.EACCES
    else:
        return
    raise UserError(f"cannot write to {out}: {os.strerror(fault)}; name another folder by --out")


def _check_data_dir(study: Study, data_dir: str | Path) -> None:
    folder = Path(data_dir)
    if folder.is_dir() or str(data_dir) == DATA_DIR:
        return
    if folder.exists():
        raise UserError(f"--data-dir {data_dir} is a file; name the folder that holds the data sets")
    if not needs_files(study.dataset):
        raise UserError(
            f"--data-dir {data_dir} does not exist, and {study.dataset} downloads nothing into it; "
            "name a folder that exists, or leave --data-dir out"
        )
    if not (folder.absolute().parent.is_dir() and os.access(folder.absolute().parent, os.W_OK | os.X_OK)):
        raise UserError(
            f"--data-dir {data_dir} does not exist and cannot be made in {folder.absolute().parent}; "
            "name a folder that exists, or make it first"
        )


def _nearest(path: Path) -> Path:
    """Return the path itself, or the nearest of its parents that exists."""
    path = path.absolute()
    return next(parent for parent in (path, *path.parents) if os.path.lexists(parent))
