"""Leases on pieces of work, so that two drivers on one store never compute the same cell.

A lease is a file `leases/<name>.<generation>.json`. Who wants to take over an expired one creates the next
generation, which only one writer can do; the holder alone rewrites its own. So no step needs a lock, and a
process that dies at any point leaves at worst a lease that runs out.

Clocks of two machines may differ by hours. So the time in the file is for people; whether another machine's lease
has run out is judged by its not having changed, for as long as it lasts, on the clock of whoever wants it.
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
ATTEMPTS = 20
LOOK_SECONDS = 1.0


class Holder(BaseModel):
    """Who holds a lease, and until when."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    owner: str
    host: str = ""
    pid: int = 0
    started: str = ""
    seconds: float = Field(60.0, gt=0, le=86_400)  # how long it lasts without a renewal
    expires: float = Field(allow_inf_nan=False)  # by its holder's clock; 0 when it was given back

    @property
    def is_dead(self) -> bool:
        """Whether its process has ended, on this machine."""
        return bool(self.host) and self.host == process.host() and not process.is_alive(self.pid, self.started)

    @property
    def title(self) -> str:
        return f"process {self.pid} on {self.host.split(' ')[0] or 'an unknown machine'}"

    @property
    def seems_over(self) -> bool:
        """At one look, for people: right as far as the clocks agree."""
        return time.time() > self.expires or self.is_dead


class Observed:
    """How long leases have not changed, by a clock that no other machine sets; a new one was changed just now."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[Holder, float]] = {}
        self._lock = threading.Lock()

    def is_over(self, store: Store, path: str, holder: Holder) -> bool:
        if holder.is_dead or not holder.expires:
            return True
        if not holder.owner:  # created and not filled
            return time.time() > holder.expires
        now = elapsed()
        with self._lock:
            before, since = self._seen.get((store.uri, path), (None, now))
            if before != holder:
                self._seen[store.uri, path] = (holder, now)
                return False
        return now - since > holder.seconds

    def forget(self, store: Store, path: str) -> None:
        with self._lock:
            self._seen.pop((store.uri, path), None)


def elapsed() -> float:
    """Seconds that go on while a machine sleeps, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


OBSERVED = Observed()


class Lease:
    """Held until `release`; a thread renews it. `lost` tells that another took over: whatever it stood for must end."""

    def __init__(self, store: Store, paths: list[str], holder: Holder, seconds: float) -> None:
        # Its own thread tries again by itself: it must not be kept by a store that waits for an answer.
        self.store, self.paths, self.holder, self.seconds = store.impatient, paths, holder, seconds
        self.lost = False
        self._renewed = elapsed()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {paths[-1]}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.lost:
            return
        if elapsed() - self._renewed < self.seconds * 2 / 3:
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
            late = elapsed() - self._renewed > self.seconds
            renewed = self.holder.model_copy(update={"expires": time.time() + self.seconds})
            try:
                if late and self._is_taken():
                    self.lost = True
                    return
                self.store.write(self.paths[-1], _dump(renewed))
                # Who took over between the look and the write has seen no change: then the later one has it.
                if late and self._is_taken():
                    self.lost = True
                    self.store.delete(self.paths[-1])
                    return
            except OSError:
                continue  # while the store is away nobody else can take it either
            self.holder, self._renewed = renewed, elapsed()

    def _is_taken(self) -> bool:
        """Whether this process slept, or the store was away, for so long that another has it now."""
        mine = _parts(self.paths[-1])
        return any(
            _parts(entry.path)[0] == mine[0] and _parts(entry.path)[1] > mine[1]
            for entry in self.store.entries(layout.LEASES)
        ) or not self.store.exists(self.paths[-1])


def take(store: Store, name: str, seconds: float = 60.0) -> Lease | None:
    """A lease on a piece of work, kept alive by a heartbeat until released; None when another holds it."""
    me = Holder(
        owner=uuid.uuid4().hex,
        host=process.host(),
        pid=os.getpid(),
        started=process.started(os.getpid()),
        seconds=seconds,
        expires=time.time() + seconds,
    )
    found = _generations(store, name)
    if _is_live(store, name, found):
        return None
    # Earlier generations stay until the release: they keep those away whose listing is old (a network folder).
    first = max(found, default=0) + 1
    for number in range(first, first + ATTEMPTS):
        created = store.create(layout.lease(name, number), _dump(me))
        known = _generations(store, name)
        others = {other: holder for other, holder in known.items() if holder.owner != me.owner}
        # A remote store may have carried out what it then reported as refused: the owner in the file decides.
        created = created or (number in known and number not in others)
        if _is_live(store, name, others):
            if created:
                # Both began in the moment of a release and saw different generations: the later one yields.
                store.delete(layout.lease(name, number))
            return None
        if created:
            earlier = [layout.lease(name, other) for other in sorted(others)]
            for path in earlier:
                OBSERVED.forget(store, path)
            return Lease(store, [*earlier, layout.lease(name, number)], me, seconds)
        # Something that is no lease is in the way, such as a folder: the next number is free.
    return None


def _is_live(store: Store, name: str, generations: dict[int, Holder]) -> bool:
    """Every one is looked at: how long it has not changed counts from the first look."""
    over = [OBSERVED.is_over(store, layout.lease(name, number), one) for number, one in generations.items()]
    return not all(over)


def held(store: Store) -> dict[str, Holder]:
    """Who seems to hold what; expired and released leases are left out."""
    newest: dict[str, tuple[int, Holder]] = {}
    for entry in store.entries(layout.LEASES):
        name, generation = _parts(entry.path)
        holder = _load(store, entry.path, entry.modified)
        if name and holder and generation > newest.get(name, (0, None))[0]:
            newest[name] = (generation, holder)
    return {name: holder for name, (_, holder) in newest.items() if not holder.seems_over}


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
        self._seen: dict[str, tuple[float, Holder | None]] = {}  # of the refused ones' files: changed when, by whom

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
        """Who holds one is read again when its file changed, as it does when it is renewed."""
        live, seen = set(), {}
        for entry in self.store.entries(layout.LEASES):
            name = _parts(entry.path)[0]
            if name not in self.refused:
                continue
            known = self._seen.get(entry.path)
            if known is None or known[0] != entry.modified:
                known = entry.modified, _load(self.store, entry.path, entry.modified)
            seen[entry.path] = known
            holder = known[1]
            if holder is not None and not OBSERVED.is_over(self.store, entry.path, holder):
                live.add(name)
        self._seen = seen
        return live

    def lost(self) -> list[str]:
        """The names that another has taken over."""
        return [name for name, lease in self._held.items() if lease.lost]

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
