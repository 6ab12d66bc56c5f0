"""Where and with what numbers are made: the device and threads of this process, versions, the data, the commit."""

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

from trainers.precision import used_precision

# Whatever can move a result, and the two that say who computed it.
PACKAGES = ("ray", "robustsweep", "pyautoattack", "optuna", "numpy", "scikit-learn")


@functools.cache
def versions() -> dict[str, str]:
    # torch's own word says which build it is (2.13.0+cu130), which the package's metadata may leave out.
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
    """What a record says of the process that made it, and of the data by their SHA-256.

    `precision` is what was asked for; the record says what this device makes of it.
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
    """Of the project's own clone, where it runs from one."""
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
