"""A function in a forked child of a warm process: its exit code, what it printed, and whether it hung."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.patience import patience

HANG_SECONDS = 90.0
PARENT_DEATH_SIGNAL = 1


@dataclass(frozen=True)
class Ended:
    code: int  # negative: the signal that ended it
    output: str
    hung: bool = False

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def has_traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.output


class Child:
    """Runs from its making on; `end` waits for it. It leads a process group of its own, and prints to a pipe: files may
    be refused to it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        source, descriptor = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(source)
            _be_child(function, descriptor)
        os.close(descriptor)
        os.set_blocking(source, False)
        self._source, self._output = os.fdopen(source, "rb", buffering=0), bytearray()

    def end(self, seconds: float = HANG_SECONDS) -> Ended:
        limit, hung = time.monotonic() + patience(seconds), False
        pause = 0.002
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            while data := self._source.read():  # None where nothing is there, no bytes at the end
                self._output += data
            if pid:
                break
            if time.monotonic() > limit and not hung:
                hung = True
                self.kill()
            time.sleep(pause)
            pause = min(0.05, pause * 1.5)
        return Ended(os.waitstatus_to_exitcode(status), self._output.decode(errors="replace"), hung)

    def kill(self) -> None:
        for end in (os.killpg, os.kill):
            try:
                end(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def in_child(function: Callable[[], Any], seconds: float = HANG_SECONDS) -> Ended:
    return Child(function).end(seconds)


def die_with_parent() -> None:
    """A campaign that is ended from outside leaves nobody behind."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _be_child(function: Callable[[], Any], descriptor: int) -> None:
    code = 0
    try:
        os.setpgid(0, 0)
        die_with_parent()
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        function()
    except SystemExit as fault:
        code = fault.code if isinstance(fault.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
