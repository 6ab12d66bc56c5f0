"""The steps by which a store changes, counted: replace, unlink, rename, link and exclusive create below its folder.

The calls of the system are wrapped, not the store's own methods: between two of them lies every window in which a
kill can leave something behind, whoever makes them (the store, the checkpoints, Optuna's journal).
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEFORE, AFTER = "before", "after"
CALLS = ("replace", "rename", "unlink", "remove", "symlink", "link", "open")


class Countdown:
    """Kills the process that makes step number `at`, right before or right after it; 0 only counts.

    The count is shared with forked children: a worker of its own counts on.
    """

    def __init__(self, root: Path, at: int = 0, side: str = BEFORE, fault: Callable[[], None] | None = None) -> None:
        self.root, self.at, self.side = str(root), at, side
        self._die = fault or _killed
        self._shared = mmap.mmap(-1, 8)

    @property
    def count(self) -> int:
        return int(struct.unpack("q", self._shared[:8])[0])

    def install(self) -> None:
        """For the rest of this process and of those that it forks."""
        for name in CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: Any, *arguments: Any, **options: Any) -> Any:
            if not self._is_step(name, path, arguments):
                return call(path, *arguments, **options)
            number = self.count + 1
            self._shared[:8] = struct.pack("q", number)
            if number == self.at and self.side == BEFORE:
                self._die()
            result = call(path, *arguments, **options)
            if number == self.at and self.side == AFTER:
                self._die()
            return result

        return counted

    def _is_step(self, name: str, path: Any, arguments: tuple[Any, ...]) -> bool:
        if name == "open" and not (arguments and arguments[0] & os.O_EXCL):
            return False
        # A link's first argument is what it points at.
        place = arguments[0] if name in ("symlink", "link") and arguments else path
        return isinstance(place, str | os.PathLike) and os.fspath(place).startswith(self.root)


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
