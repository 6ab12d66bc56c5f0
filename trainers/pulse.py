"""A sign that a computation goes on, for whoever waits for it: loops beat, and at most one listener hears."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listener: Callable[[], None] | None = None


def beat() -> None:
    """One more step is done; costs nothing where nobody listens."""
    if _listener is not None:
        _listener()


@contextmanager
def heard_by(listener: Callable[[], None]) -> Iterator[None]:
    """The listener is called by every beat inside, in the thread that beats."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before
