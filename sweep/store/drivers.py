"""The leases of a driver: hundreds of them, kept alive by one file that it renews, and what it knows of the others'."""

from __future__ import annotations

import math
import threading
import time
import uuid

from sweep.store import layout
from sweep.store.base import Entry, Store
from sweep.store.holders import Holder, Look, dump, elapsed, held, load, parts
from sweep.store.leases import holder_here, is_taken, take_files

LEASE_SECONDS = 60.0
DRIVERS_SECONDS = 600.0  # how old the list of those who share the work may be


class SignOfLife:
    """The file that a driver renews. One that comes too late looks for what others have taken over meanwhile."""

    def __init__(self, store: Store, seconds: float) -> None:
        # Its own thread tries again by itself: it must not be kept by a store that waits for an answer.
        self.store = store.impatient
        self.name = layout.driver_lease(uuid.uuid4().hex)
        self.path = layout.lease(self.name, 1)
        self.holder = holder_here(seconds)
        self.leases: dict[str, DriversLease] = {}
        self._renewed = elapsed()
        store.write(self.path, dump(self.holder))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {self.path}", daemon=True)
        self._thread.start()

    @property
    def is_fresh(self) -> bool:
        """Nobody can take this driver for dead yet."""
        return elapsed() - self._renewed < self.holder.seconds * 2 / 3

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self.store.delete(self.path)

    def renew(self) -> None:
        began = elapsed()
        late = began - self._renewed > self.holder.seconds
        renewed = self.holder.model_copy(update={"expires": time.time() + self.holder.seconds})
        self.store.write(self.path, dump(renewed))
        if late:  # who takes over after this write sees it, and leaves what it has just taken
            there = [entry.path for entry in self.store.entries(layout.LEASES)]
            for lease in list(self.leases.values()):
                lease.lost = lease.lost or is_taken(lease.paths[-1], there)
        self.holder, self._renewed = renewed, began

    def _beat(self) -> None:
        while not self._stop.wait(self.holder.seconds / 3):
            try:
                self.renew()
            except OSError:
                continue  # while the store is away nobody else can take anything either


class DriversLease:
    """One lease of a driver. `lost` tells that another took over: whatever it stood for must end."""

    def __init__(self, store: Store, paths: list[str], holder: Holder, sign: SignOfLife) -> None:
        self.store, self.paths, self.holder, self.sign = store.impatient, paths, holder, sign
        self.lost = False

    def release(self) -> None:
        if self.sign.is_fresh and not self.lost:
            for path in self.paths:
                self.store.delete(path)
            return
        # Another may have it: then it deletes these files. If both stepped back, this one is nobody else's to free.
        there = [entry.path for entry in self.store.entries(layout.LEASES)]
        mine = load(self.store, self.paths[-1], 0.0)
        if mine is not None and mine.owner == self.holder.owner and not is_taken(self.paths[-1], there):
            # Somebody may just be creating the next generation: deleting this one could let a third start anew.
            self.store.write(self.paths[-1], dump(self.holder.model_copy(update={"expires": 0.0})))


class HeldLeases:
    """The leases that this driver holds, by name, and those that others had when it asked for them."""

    def __init__(self, store: Store, seconds: float | None = None) -> None:
        self.store, self.seconds = store, seconds or LEASE_SECONDS
        self.refused: set[str] = set()  # names that another had when they were last asked for
        self._sign: SignOfLife | None = None
        self._held: dict[str, DriversLease] = {}
        self._live: set[str] = set()  # names that others had at the last look
        self._listed: set[str] = set()  # names with a file: who holds them is asked when there is nothing else to do
        self._looked = -math.inf
        self._files: dict[str, tuple[float, Holder | None]] = {}  # as read: changed when, held by whom
        self._drivers: dict[str, tuple[float, float]] = {}  # their signs of life: changed when, and seen so since when
        self._counted = -math.inf

    @property
    def sign(self) -> SignOfLife:
        """Begun when it is needed: many a run finds nothing to do."""
        if self._sign is None:
            self._sign = SignOfLife(self.store, self.seconds)
        return self._sign

    def take(self, name: str) -> bool:
        """Whether it is ours, now or already."""
        if name not in self._held:
            if self.is_refused(name):
                return False
            me = self.sign.holder.model_copy(update={"owner": uuid.uuid4().hex, "driver": self.sign.name})
            paths = take_files(self.store, name, me)
            if paths is None:
                self.refused.add(name)
                self._live.add(name)
                return False
            self.refused.discard(name)
            self._held[name] = self.sign.leases[name] = DriversLease(self.store, paths, me, self.sign)
        return True

    def has(self, name: str) -> bool:
        return name in self._held

    def release(self, name: str) -> None:
        lease = self._held.pop(name, None)
        if lease is not None:
            self.sign.leases.pop(name, None)
            lease.release()

    def is_refused(self, name: str) -> bool:
        """Whether another had it when it was asked for, and had it still at the last look; or seems to have it."""
        return (name in self.refused and name in self._live) or name in self._listed

    def look(self, seconds: float, *, at_all: bool = False) -> bool:
        """Which of the refused ones others still have, unless the last look is no older; whether any is free now.

        One listing answers for all names; who holds one is read again when its file has changed. `at_all`: who has
        nothing else to do also asks who holds what was only listed.
        """
        asks = self.refused or (at_all and self._listed)
        if not asks or time.monotonic() - self._looked < seconds:
            return False
        before = self._live
        if at_all:
            before = before | self._listed
            self.refused |= self._listed
            self._listed = set()
        self._judge(self._entries())
        return bool(self.refused & before - self._live)

    def expect(self, names: set[str], less_urgent: set[str]) -> None:
        """Which of these others have: asked about once for all, so that nobody tries them one by one.

        Of less urgent ones a file is enough, until there is nothing else to do: of ten thousand each would be read.
        """
        entries = self._entries()
        there = {parts(entry.path)[0] for entry in entries} - set(self._held)
        self.refused |= names & there
        self._listed = less_urgent & there - self.refused
        self._judge(entries)

    def _judge(self, entries: list[Entry]) -> None:
        """Which of the refused ones others have by what is listed now."""
        listed = {entry.path: entry.modified for entry in entries}
        self._files = {path: known for path, known in self._files.items() if known[0] == listed.get(path)}

        def read(path: str) -> Holder | None:
            if path not in self._files and path in listed:
                self._files[path] = listed[path], load(self.store, path, listed[path])
            return self._files[path][1] if path in self._files else None

        self._live = set()
        look = Look(self.store, read)
        for path in listed:
            name = parts(path)[0]
            if name in self.refused and (holder := read(path)) and not look.is_over(path, holder):
                self._live.add(name)
        self._looked = time.monotonic()

    def drivers(self) -> list[str]:
        """All that seem to be at work on this store, this one among them; for who begins where, never for safety."""
        if elapsed() - self._counted > DRIVERS_SECONDS:
            list(self._entries())
        silent = elapsed() - DRIVERS_SECONDS
        return sorted({self.sign.name, *(name for name, (_, since) in self._drivers.items() if since > silent)})

    def _entries(self) -> list[Entry]:
        """The leases that are there; in passing, which drivers give signs of life."""
        found, now = list(self.store.entries(layout.LEASES)), elapsed()
        there = {name: entry.modified for entry in found if layout.is_driver(name := parts(entry.path)[0])}
        before = self._drivers
        self._drivers = {
            name: before[name] if name in before and before[name][0] == modified else (modified, now)
            for name, modified in there.items()
        }
        self._counted = now
        return found

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
        if self._sign is not None:
            self._sign.end()
            self._sign = None
