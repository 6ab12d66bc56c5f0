"""Leases on pieces of work, so that two drivers on one store never compute the same cell.

A lease is a file `leases/<name>.<generation>.json`. Who wants to take over an expired one creates the next
generation, which only one writer can do; the holder alone rewrites its own. So no step needs a lock, and a
process that dies at any point leaves at worst a lease that runs out.
"""

from __future__ import annotations

import math
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweep.store import layout, process
from sweep.store.base import Entry, Store

UNFILLED_SECONDS = 10.0
UNCHANGED_SECONDS = 60.0
LOOK_SECONDS = 1.0
ATTEMPTS = 20


class Holder(BaseModel):
    """Who holds a lease, and until when."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    owner: str
    host: str = ""
    pid: int = 0
    started: str = ""
    expires: float = Field(allow_inf_nan=False)

    @property
    def is_dead(self) -> bool:
        """Whether its process has ended, on this machine."""
        return bool(self.host) and self.host == process.host() and not process.is_alive(self.pid, self.started)

    @property
    def title(self) -> str:
        return f"process {self.pid} on {self.host.split(' ')[0] or 'an unknown machine'}"

    @property
    def is_over(self) -> bool:
        return time.time() > self.expires or self.is_dead


class Lease:
    """Held until `release`; a thread renews it. `lost` tells that another took over (this process slept too long)."""

    def __init__(self, store: Store, paths: list[str], holder: Holder, seconds: float) -> None:
        self.store, self.paths, self.holder, self.seconds = store, paths, holder, seconds
        self.lost = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {paths[-1]}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.lost:
            return
        if time.time() < self.holder.expires - self.seconds / 3:
            for path in self.paths:
                self.store.delete(path)
        else:
            # Somebody may just be creating the next generation: deleting this one could let a third start anew.
            self.store.write(self.paths[-1], _dump(self.holder.model_copy(update={"expires": 0.0})))

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _beat(self) -> None:
        while not self._stop.wait(self.seconds / 3):
            if time.time() > self.holder.expires:
                self.lost = True
                return
            renewed = self.holder.model_copy(update={"expires": time.time() + self.seconds})
            try:
                self.store.write(self.paths[-1], _dump(renewed))
            except OSError:
                continue  # the store may come back before the lease runs out
            self.holder = renewed


def take(store: Store, name: str, seconds: float = 60.0) -> Lease | None:
    """A lease on a piece of work, kept alive by a heartbeat until released; None when another holds it."""
    me = Holder(
        owner=uuid.uuid4().hex,
        host=process.host(),
        pid=os.getpid(),
        started=process.started(os.getpid()),
        expires=time.time() + seconds,
    )
    found = _generations(store, name)
    if any(not holder.is_over for holder in found.values()):
        return None
    # Earlier generations stay until the release: they keep those away whose listing is old (a network folder).
    first = max(found, default=0) + 1
    for number in range(first, first + ATTEMPTS):
        created = store.create(layout.lease(name, number), _dump(me))
        known = _generations(store, name)
        others = {other: holder for other, holder in known.items() if holder.owner != me.owner}
        # A remote store may have carried out what it then reported as refused: the owner in the file decides.
        created = created or (number in known and number not in others)
        if any(not holder.is_over for holder in others.values()):
            if created:
                # Both began in the moment of a release and saw different generations: the later one yields.
                store.delete(layout.lease(name, number))
            return None
        if created:
            earlier = [layout.lease(name, other) for other in sorted(others)]
            return Lease(store, [*earlier, layout.lease(name, number)], me, seconds)
        # Something that is no lease is in the way, such as a folder: the next number is free.
    return None


def held(store: Store) -> dict[str, Holder]:
    """Who holds what; expired and released leases are left out."""
    newest: dict[str, tuple[int, Holder]] = {}
    for entry in store.entries(layout.LEASES):
        name, generation = _parts(entry.path)
        holder = _load(store, entry.path, entry.modified)
        if name and holder and generation > newest.get(name, (0, None))[0]:
            newest[name] = (generation, holder)
    return {name: holder for name, (_, holder) in newest.items() if not holder.is_over}


def abandoned(store: Store, old: float) -> list[Entry]:
    """Files of leases that nobody holds: of dead processes of this machine, and others last renewed before `old`."""
    names = held(store)
    found = []
    for entry in store.entries(layout.LEASES):
        holder = _load(store, entry.path, entry.modified)
        if _parts(entry.path)[0] not in names and holder and (holder.is_dead or entry.modified < old):
            found.append(entry)
    return found


class HeldLeases:
    """The leases that this process holds, by name."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.refused: set[str] = set()  # names that another had when they were last asked for
        self._held: dict[str, Lease] = {}
        self._live: set[str] = set()  # of the refused ones, those that another still had at the last look
        self._looked = -math.inf
        self._seen: dict[str, tuple[float, float, Holder]] = {}  # of their files: changed when, seen when, by whom

    def take(self, name: str) -> bool:
        """Whether it is ours, now or already."""
        if name not in self._held:
            if self.is_refused(name):
                return False
            lease = take(self.store, name)
            if lease is None:
                self.refused.add(name)
                return False
            self.refused.discard(name)
            self._held[name] = lease
        return True

    def release(self, name: str) -> None:
        lease = self._held.pop(name, None)
        if lease is not None:
            lease.release()

    def is_refused(self, name: str) -> bool:
        """Whether another had it when it was asked for, and has it still: one listing answers for all such names."""
        if name not in self.refused:
            return False
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._live, self._looked = self._still_refused(), time.monotonic()
        return name in self._live

    def _still_refused(self) -> set[str]:
        """By when their files changed: a renewal changes it. Who holds one is read once, to see a neighbour die."""
        now, live, seen = time.monotonic(), set(), {}
        dead: dict[tuple[str, int, str], bool] = {}  # one process holds many
        for entry in self.store.entries(layout.LEASES):
            name = _parts(entry.path)[0]
            if name not in self.refused:
                continue
            changed, since, holder = self._seen.get(entry.path, (entry.modified, now, None))
            holder = holder or _load(self.store, entry.path, entry.modified)
            if holder is None:
                continue
            since = since if changed == entry.modified else now
            seen[entry.path] = (entry.modified, since, holder)
            whose = (holder.host, holder.pid, holder.started)
            if whose not in dead:
                dead[whose] = holder.is_dead
            if holder.expires and now - since < UNCHANGED_SECONDS and not dead[whose]:
                live.add(name)
        self._seen = seen
        return live

    def others(self) -> list[Holder]:
        """Who has what was refused here; one that has several is there once."""
        known = held(self.store) if self.refused else {}
        found = {(one.host, one.pid): one for name, one in known.items() if name in self.refused}
        return list(found.values())

    def release_all(self) -> None:
        for name in list(self._held):
            self.release(name)


@contextmanager
def alone(store: Store, name: str, patience: float = 15.0) -> Iterator[None]:
    """Read and write while no other process does the same; one that takes too long is waited for no longer."""
    end = time.monotonic() + patience
    while (lease := take(store, name, patience)) is None and time.monotonic() < end:
        time.sleep(0.05)
    try:
        yield
    finally:
        if lease is not None:
            lease.release()


def _parts(path: str) -> tuple[str, int]:
    name, _, generation = path.removeprefix(f"{layout.LEASES}/").removesuffix(".json").rpartition(".")
    return (name, int(generation)) if generation.isdecimal() and len(generation) < 10 else ("", 0)


def _generations(store: Store, name: str) -> dict[int, Holder]:
    found = {}
    start = f"{layout.LEASES}/{name}."
    for entry in store.entries(layout.LEASES):
        if not entry.path.startswith(start):  # hundreds of others, taken apart only where it matters
            continue
        other, generation = _parts(entry.path)
        if other == name and (holder := _load(store, entry.path, entry.modified)):
            found[generation] = holder
    return found


def _load(store: Store, path: str, modified: float) -> Holder | None:
    try:
        return Holder.model_validate_json(store.read(path))
    except FileNotFoundError:
        return None
    except ValidationError:
        # Created but not yet filled: its maker is alive, or died within that moment.
        return Holder(owner="", expires=modified + UNFILLED_SECONDS)


def _dump(holder: Holder) -> bytes:
    return holder.model_dump_json().encode()
