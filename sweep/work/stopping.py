"""How a sweep ends before its work is done: asked by a signal or because Ray is gone, and within seconds in any case.

A signal for a whole process group (`timeout`, `scancel`) ends Ray's own processes too. What still waits for them would
wait for a minute and then be aborted, so the process ends without them; what is finished is in the store.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from sweep.errors import FAILED, INTERRUPTED, SweepEnded

KINDS = (signal.SIGINT, signal.SIGTERM)
PATIENCE_SECONDS = 9.0  # for a clean stop; then the process ends as it is
LAST_SECONDS = 3.0  # for the last acts of a process that ends as it is
ECHO_SECONDS = 1.0  # `timeout` signals the process and then its group: the second signal is no second wish


class Stop:
    """The first Ctrl-C (or SIGTERM) asks for a clean stop; the second Ctrl-C ends at once.

    It listens from before Ray starts, and by a thread: Ray puts handlers of its own in place of others, and may keep
    the main thread from running any.
    """

    def __init__(self, command: str = "") -> None:
        self.command = command
        self.last_acts: list[Callable[[], object]] = []  # done also where nothing else is waited for
        self._asked = threading.Event()
        self._lost: str | None = None
        self._since = 0.0
        self._over = threading.Event()
        self._before: dict[signal.Signals, Any] = {}
        self._ears: tuple[socket.socket, socket.socket] | None = None
        self._wakeup = -1

    def asked(self) -> bool:
        return self._asked.is_set()

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def lost(self, reason: str) -> None:
        """There is nothing left to work on."""
        self._lost = reason
        self._ask()

    def fault(self) -> BaseException:
        """What a sweep that was asked to stop ends with."""
        return KeyboardInterrupt() if self._lost is None else SweepEnded(f"{self._lost}\n{self._way_on()}")

    def listen(self) -> None:
        """Once more after others may have set handlers of their own."""
        for kind in self._before:
            signal.signal(kind, _leave_it_to_the_thread)

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._ears = socket.socketpair()
            for ear in self._ears:
                ear.setblocking(False)
            self._wakeup = signal.set_wakeup_fd(self._ears[1].fileno(), warn_on_full_buffer=False)
            self._before = {kind: signal.getsignal(kind) for kind in KINDS}
            self.listen()
            threading.Thread(target=self._listen, args=(self._ears[0],), name="signals", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._ears is not None:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup)
            self._ears[1].close()  # ends the listener

    def _listen(self, ear: socket.socket) -> None:
        ear.setblocking(True)
        with ear:
            while heard := ear.recv(1):
                if heard[0] not in KINDS:
                    continue
                if not self.asked():
                    _say("stopping after the current step; press Ctrl-C again to end at once")
                    self._ask()
                elif heard[0] == signal.SIGINT and time.monotonic() - self._since > ECHO_SECONDS:
                    self._end()

    def _ask(self) -> None:
        if not self.asked():
            self._since = time.monotonic()
            self._asked.set()
            threading.Thread(target=self._end_later, name="stop", daemon=True).start()

    def _end_later(self) -> None:
        if not self._over.wait(PATIENCE_SECONDS):
            self._end()

    def _end(self) -> None:
        acts = threading.Thread(target=self._act, daemon=True)
        acts.start()
        acts.join(LAST_SECONDS)
        if self._lost is None:
            _say(f"stopped; everything finished is kept, and trials go on from their last epoch\n{self._way_on()}")
        else:
            _say(f"error: {self.fault()}")
        os._exit(INTERRUPTED if self._lost is None else FAILED)

    def _act(self) -> None:
        for act in self.last_acts:
            with contextlib.suppress(Exception):
                act()

    def _way_on(self) -> str:
        return f"to go on: {self.command}" if self.command else "the same command goes on"


def _leave_it_to_the_thread(kind: int, frame: Any) -> None:
    """Python tells the thread by the wake-up descriptor; without a handler the signal would end the process."""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
