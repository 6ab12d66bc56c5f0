"""Virtual time for everything of a driver that asks what time it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from sweep.cluster import desk
from sweep.search import stored
from sweep.store import drivers, holders, leases
from sweep.work import evaluations, others, pace, ready, work

MODULES: tuple[Any, ...] = (work, ready, evaluations, others, pace, leases, drivers, holders, stored, desk)
WITH_THREADS: tuple[Any, ...] = (leases, drivers)


class Clock:
    """Stands in for the module `time`."""

    CLOCK_BOOTTIME = 0

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return 1e9 + self.now

    def monotonic(self) -> float:
        return self.now

    def clock_gettime(self, _: int) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Idle:
    """In place of the thread that renews a lease."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def start(self) -> None: ...

    def join(self) -> None: ...


@contextmanager
def virtual(clock: Clock) -> Iterator[None]:
    """Drivers live by this clock; no lease has a thread."""
    before = [(module, module.time) for module in MODULES]
    for module in MODULES:
        module.time = clock
    for module in WITH_THREADS:
        module.threading = SimpleNamespace(Thread=Idle, Event=threading.Event, Lock=threading.Lock)
    try:
        yield
    finally:
        for module, original in before:
            module.time = original
        for module in WITH_THREADS:
            module.threading = threading
