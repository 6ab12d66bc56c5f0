"""Provenance of results: device, threads, package versions, data set hashes and commit of this process."""

from __future__ import annotations

import contextlib
import functools
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from trainers.loop.precision import used_precision

# Packages that can change a result, and the two that identify what computed it.
PACKAGES = ("ray", "robustsweep", "pyautoattack", "optuna", "numpy", "scikit-learn")


@functools.cache
def versions() -> dict[str, str]:
    # torch.__version__ includes the build (2.13.0+cu130), which the package's metadata may omit.
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


@functools.cache
def device_name() -> str:
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "cpu " + next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"cpu {platform.machine()}"


def made_here(data: Mapping[str, str] | None = None, precision: str | None = None) -> dict[str, Any]:
    """Return the provenance fields of a record made by this process.

    `data` maps data set names to their SHA-256. `precision` is the requested one; the record gets the one that this
    device actually uses.
    """
    return {
        "versions": versions(),
        "device": device_name(),
        "device_kind": device(),
        "devices": (device_name(),),
        "precision": used_precision(precision, device()),
        "threads": torch.get_num_threads(),
        "data": dict(data or {}),
    }


def commit() -> str | None:
    """Return the commit of the git clone that the project runs from, or None outside of one."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
