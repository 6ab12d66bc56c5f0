"""Early ends of a sweep, within seconds: after a signal, or when Ray is lost.

A signal to a whole process group (`timeout`, `scancel`) ends Ray's own processes too. Code that waits for them would
wait for a minute and then be aborted. Therefore the process ends without them; finished work is in the store.
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
PATIENCE_SECONDS = 9.0  # time for a clean stop, after which the process ends at once
LAST_SECONDS = 3.0  # time for the last acts of a process that ends at once
ECHO_SECONDS = 1.0  # `timeout` signals the process and then its group: the second signal is not a second request


class Stop:
    """The handling of Ctrl-C and SIGTERM: the first asks for a clean stop, a second Ctrl-C ends the process at once.

    It starts before Ray does and listens in a thread. Ray replaces signal handlers with its own, and may keep the main
    thread from running any.
    """

    def __init__(self, command: str = "") -> None:
        self.command = command
        self.last_acts: list[Callable[[], object]] = []  # also called when the process ends at once
        self._asked = threading.Event()
        self._lost: str | None = None
        self._since = 0.0
        self._over = threading.Event()
        self._before: dict[signal.Signals, Any] = {}
        self._ears: tuple[socket.socket, socket.socket] | None = None
        self._wakeup = -1
        self._stream = sys.stderr  # while a piece runs in this process, sys.stderr is redirected to its log

    def asked(self) -> bool:
        return self._asked.is_set()

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def lost(self, reason: str) -> None:
        """End the sweep because it can no longer work."""
        self._lost = reason
        self._ask()

    def fault(self) -> BaseException:
        """Return the exception with which a stopped sweep ends."""
        return KeyboardInterrupt() if self._lost is None else SweepEnded(f"{self._lost}\n{self._way_on()}")

    def listen(self) -> None:
        """Install the signal handlers. Call it again if other code may have replaced them."""
        for kind in self._before:
            signal.signal(kind, _leave_it_to_the_thread)

    def end_if_asked(self) -> None:
        """Raise the exception that ends the sweep, if a stop was requested."""
        if self.asked():
            raise self.fault()

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():  # other threads cannot set signal handlers
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
            self._ears[1].close()  # ends the listening thread

    def _listen(self, ear: socket.socket) -> None:
        ear.setblocking(True)
        with ear:
            while heard := ear.recv(1):
                if heard[0] not in KINDS:
                    continue
                if not self.asked():
                    self._say("stopping after the current step; press Ctrl-C again to end at once")
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
            self._say(f"stopped; everything finished is kept, and trials go on from their last epoch\n{self._way_on()}")
        else:
            self._say(f"error: {self.fault()}")
        os._exit(INTERRUPTED if self._lost is None else FAILED)

    def _act(self) -> None:
        for act in self.last_acts:
            with contextlib.suppress(Exception):
                act()

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def _way_on(self) -> str:
        return f"to go on: {self.command}" if self.command else "the same command goes on"


def _leave_it_to_the_thread(kind: int, frame: Any) -> None:
    """Do nothing: Python notifies the thread through the wake-up descriptor.

    Without a handler, the signal would end the process.
    """
