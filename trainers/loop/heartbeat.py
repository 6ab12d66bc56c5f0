"""A heartbeat of long computations: loops beat, and at most one listener is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listener: Callable[[], None] | None = None


def beat() -> None:
    """Signal one more completed step. Costs nothing without a listener."""
    if _listener is not None:
        _listener()


@contextmanager
def heard_by(listener: Callable[[], None]) -> Iterator[None]:
    """Call the listener at every beat inside the block, in the thread that beats."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before
