"""How long a test may wait: on a machine that has more to do than cores to do it, everything takes longer."""

import os

MOST = 12.0  # a hang is still found within an hour


def patience(seconds: float) -> float:
    """These seconds on a machine of our own; the more, the more processes share its cores."""
    try:
        load = max(os.getloadavg())
    except OSError:
        load = 0.0
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return seconds * min(MOST, max(1.0, load / cores, workers / cores))
