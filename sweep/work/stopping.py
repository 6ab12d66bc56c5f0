"""How a sweep is asked to stop."""

from __future__ import annotations

import signal
import sys
import threading
from types import TracebackType
from typing import Any

KINDS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """The first Ctrl-C (or SIGTERM) asks for a clean stop; the second ends at once.

    It listens from before Ray starts: a signal that raises in the middle of that can be swallowed there.
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def asked(self) -> bool:
        return self._stop.is_set()

    def listen(self) -> None:
        """Once more after others may have set handlers of their own."""
        if self._before and not self.asked():
            for kind in KINDS:
                signal.signal(kind, self._ask)

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {kind: signal.getsignal(kind) for kind in KINDS}
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, kind: int, frame: Any) -> None:
        self._stop.set()
        print("stopping after the current step; press Ctrl-C again to end at once", file=sys.stderr, flush=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)
