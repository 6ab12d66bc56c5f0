"""Leases on units of work, so that two drivers on one store never compute the same thing.

The process that creates the file `leases/<name>.1.json` holds the lease and renews the file from a thread. An expired
lease is taken over by creating a second file, named after the identity in the first; a third file is named after the
identity in the second. Identities are never reused, so a process with an outdated view of a lease can only create a
file that is not part of the chain. It detects this when it reads the chain again, and gives up. No step needs a lock,
and a process that dies at any point leaves at worst a lease that expires.

The clocks of two machines may differ by hours. The time in a file is therefore only for display. A lease of another
machine is expired if its file has not changed for the lease time, on the clock of the process that wants it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import threading
import time
import uuid
from collections.abc import Collection

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweep.store import layout, process
from sweep.store.base import Store

LEASE_SECONDS = 60.0
UNFILLED_SECONDS = 10.0  # a file that stays empty for this long belongs to a dead process
_observed: dict[tuple[str, str], tuple[Holder, float]] = {}  # last content of each file, and since when it is unchanged


class Holder(BaseModel):
    """The content of a lease file: its holder and expiry."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(pattern="^[0-9a-f]{32}$")  # unique to each acquisition
    owner: str = ""  # the Tune trial that acquired it
    host: str = ""
    pid: int = 0
    started: str = ""
    seconds: float = Field(60.0, gt=0, le=86_400)  # lifetime without renewal
    expires: float = Field(allow_inf_nan=False)  # on the holder's clock; 0 once released

    @property
    def is_dead(self) -> bool:
        """Return whether the holder's process ran on this machine and has ended."""
        return bool(self.host) and self.host == process.host() and not process.is_alive(self.pid, self.started)

    @property
    def title(self) -> str:
        return f"process {self.pid} on {self.host.split(' ')[0] or 'an unknown machine'}"

    def encoded(self) -> bytes:
        return self.model_dump_json().encode()


class LeaseLost(Exception):
    """An exception raised in a worker whose lease was taken over."""


class Lease:
    """A held lease, renewed by a thread until `release`. `lost` is True once another process took it over."""

    def __init__(self, store: Store, name: str, paths: list[str], holder: Holder) -> None:
        # The thread retries by itself, so it must not block in a store that waits for the service.
        self.store, self.name, self.paths, self.holder = store.impatient, name, paths, holder
        self.lost = False
        self._renewed = elapsed()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease {name}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise LeaseLost if another process took over the lease."""
        if self.lost:
            raise LeaseLost(self.name)

    def release(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.lost:
            return
        with contextlib.suppress(OSError):  # a lease that cannot be given back runs out
            if elapsed() - self._renewed < self.holder.seconds * 2 / 3:
                for path in self.paths:  # the first one first: nobody can take over what it does not lead to
                    self.store.delete(path)
            else:  # somebody may have taken over a moment ago, and needs the first file
                self._write(0.0)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _keep(self) -> None:
        while not self.lost and not self._stop.wait(self.holder.seconds / 3):
            with contextlib.suppress(OSError):  # no other process can take the lease either
                self._renew()

    def _renew(self) -> None:
        began = elapsed()
        self.lost = self._is_taken()
        if not self.lost:
            self._write(time.time() + self.holder.seconds)
            self.lost = self._is_taken()  # a takeover between check and write wins
            if self.lost:
                self._write(0.0)
            self._renewed = began

    def _is_taken(self) -> bool:
        """Return whether another process took over, possible after this one was suspended or the store unavailable."""
        if elapsed() - self._renewed < self.holder.seconds:
            return False
        mine = load(self.store, self.paths[-1])
        return mine is None or mine.id != self.holder.id or self.store.exists(layout.lease(self.name, mine.id))

    def _write(self, expires: float) -> None:
        self.holder = self.holder.model_copy(update={"expires": expires})
        self.store.write(self.paths[-1], self.holder.encoded())


def take(
    store: Store, name: str, seconds: float | None = None, *, owner: str = "", dead: Collection[str] = ()
) -> Lease | None:
    """Take a lease and renew it until it is released. Return None while another process holds it.

    Args:
        seconds: Lifetime without renewal; one minute by default.
        owner: The Tune trial that takes the lease.
        dead: Owners known to have ended on other machines. Their leases are taken over at once.
    """
    me = holder_here(seconds or LEASE_SECONDS, owner)
    paths = claim(store, name, me, dead)
    return None if paths is None else Lease(store, name, paths, me)


def holder_here(seconds: float, owner: str = "") -> Holder:
    """Return a new holder for this process."""
    pid = os.getpid()
    place = {"host": process.host(), "pid": pid, "started": process.started(pid)}
    return Holder(id=uuid.uuid4().hex, owner=owner, seconds=seconds, expires=time.time() + seconds, **place)


def claim(store: Store, name: str, me: Holder, dead: Collection[str] = ()) -> list[str] | None:
    """Acquire a lease for `me`. Return its files in order of deletion, or None if another process holds it."""
    began, first = elapsed(), _first(store, name)
    if store.create(first, me.encoded()) and elapsed() - began < UNFILLED_SECONDS / 2:
        return [first]
    files = _chain(store, name, first)
    holders = list(files.values())
    if holders and holders[-1] == me:  # created slowly, or by a remote store that reported the creation as refused
        return list(files)
    # Check every file, including those of former holders: a file's age counts from its first check.
    if not holders or not all([is_over(store, path, holder, dead) for path, holder in files.items()]):
        return None
    path = layout.lease(name, holders[-1].id)
    created = store.create(path, me.encoded())
    now = _chain(store, name, first)
    if now == {**files, path: me}:
        return list(now)
    if created or now.get(path) == me:  # the lease was renewed, released or taken in the meantime
        store.delete(path)
    return None


def is_over(store: Store, path: str, holder: Holder, dead: Collection[str] = ()) -> bool:
    """Return whether a lease file has expired or its holder is dead. `dead` holds identities or owners."""
    if not holder.expires or holder.is_dead or holder.id in dead or holder.owner in dead:
        return True
    before, since = _observed.get((store.uri, path), (None, 0.0))
    if before != holder:
        _observed[store.uri, path] = holder, elapsed()
        return False
    return elapsed() - since > holder.seconds


def load(store: Store, path: str) -> Holder | None:
    """Return the holder in a lease file, or None if the file is missing.

    For a file that was created but not yet filled, return a holder without a host.
    """
    try:
        content = store.read(path)
        return Holder.model_validate_json(content)
    except FileNotFoundError:
        return None
    except ValidationError:
        identity = hashlib.sha256(content).hexdigest()[:32]
        return Holder.model_construct(id=identity, seconds=UNFILLED_SECONDS, expires=math.inf)


def elapsed() -> float:
    """Return seconds on a clock that keeps running while the machine sleeps and that is never adjusted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _first(store: Store, name: str) -> str:
    """Return the path of a lease's first file. Numbers at which a link or folder is in the way are skipped."""
    paths = (layout.lease(name, number) for number in itertools.count(1))
    return next(path for path in paths if not ((file := store.local(path)) and (file.is_symlink() or file.is_dir())))


def _chain(store: Store, name: str, path: str) -> dict[str, Holder]:
    """Return the files of a lease with their holders, from the first to the latest takeover."""
    files: dict[str, Holder] = {}
    while path not in files and (holder := load(store, path)):
        files[path] = holder
        path = layout.lease(name, holder.id)
    return files
