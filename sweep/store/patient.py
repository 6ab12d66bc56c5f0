"""A store wrapper that retries while the store is unavailable, so that a server restart does not end a long run."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from sweep.store.base import Entry, Skip, Store

PATIENCE_SECONDS = 300.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
# Errors about the content of a store that is available.
ANSWERS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)
# Errors that waiting does not fix: a user has to free space or grant permissions.
REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EFBIG)

Answer = TypeVar("Answer")


class StoreGone(OSError):
    """An error raised when a store stayed unavailable for the whole waiting time."""


class PatientStore(Store):
    """A store that retries every call for up to five minutes. `say` gets messages; `stopping` ends the wait."""

    def __init__(
        self,
        store: Store,
        say: Callable[[str], None] = lambda _: None,
        stopping: Callable[[], bool] = lambda: False,
        seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.store, self.say, self.stopping, self.seconds = store, say, stopping, seconds
        self.uri = store.uri

    @property
    def impatient(self) -> Store:
        return self.store

    def read(self, path: str) -> bytes:
        return self._ask(lambda: self.store.read(path))

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._ask(lambda: self.store.write(path, data, durable=durable))

    def create(self, path: str, data: bytes) -> bool:
        """Create a file. Also return False if an earlier attempt of this call succeeded; read the file to check."""
        return self._ask(lambda: self.store.create(path, data))

    def exists(self, path: str) -> bool:
        return self._ask(lambda: self.store.exists(path))

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        yield from self._ask(lambda: list(self.store.entries(prefix)))

    def paths(self, prefix: str = "") -> list[str]:
        return self._ask(lambda: self.store.paths(prefix))

    def delete(self, path: str) -> None:
        self._ask(lambda: self.store.delete(path))

    def local(self, path: str) -> Path | None:
        return self.store.local(path)

    def push_file(self, source: Path, path: str) -> None:
        self._ask(lambda: self.store.push_file(source, path))

    def fetch_file(self, path: str, target: Path) -> None:
        self._ask(lambda: self.store.fetch_file(path, target))

    def read_many(self, paths: Iterable[str], skip: Skip | None = None) -> Iterator[tuple[str, bytes]]:
        wanted = list(paths)
        yield from self._ask(lambda: list(self.store.read_many(wanted, skip)))

    def _ask(self, call: Callable[[], Answer]) -> Answer:
        began, pause, said = time.monotonic(), FIRST_PAUSE, False
        while True:
            try:
                answer = call()
            except ANSWERS:
                raise
            except OSError as fault:
                if fault.errno in REFUSALS:
                    raise
                waited = time.monotonic() - began
                if waited + pause > self.seconds or self.stopping():
                    raise StoreGone(
                        f"the store {self.uri} has not answered for {waited / 60:.0f} minutes: {fault}"
                    ) from fault
                if not said:
                    self.say(f"the store does not answer ({fault}); trying again for {self.seconds / 60:.0f} minutes")
                    said = True
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            if said:
                self.say("the store answers again")
            return answer
