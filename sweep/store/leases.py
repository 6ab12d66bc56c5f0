"""Leases on pieces of work, so that two drivers on one store never compute the same cell.

A lease is a file `leases/<name>.<generation>.json`, as a rule of the first generation: whoever creates it has it. Who
wants to take over one that has run out creates the next generation, which only one writer can do; the holder alone
rewrites its own. So no step needs a lock, and a process that dies at any point leaves at worst a lease that runs out.

As long as any generation is held the first one is there, which is why its creation alone decides.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sweep.store import layout, process
from sweep.store.base import Store
from sweep.store.holders import OBSERVED, Holder, Look, dump, elapsed, generations, held, parts

ATTEMPTS, FIRST_ATTEMPTS = 20, 3


class Lease:
    """Held until `release`; a thread renews it. `lost` tells that another took over: whatever it stood for must end."""

    def __init__(self, store: Store, paths: list[str], holder: Holder) -> None:
        # Its own thread tries again by itself: it must not be kept by a store that waits for an answer.
        self.store, self.paths, self.holder, self.seconds = store.impatient, paths, holder, holder.seconds
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
            self._give_back()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _beat(self) -> None:
        while not self._stop.wait(self.seconds / 3):
            began = elapsed()
            late = began - self._renewed > self.seconds
            renewed = self.holder.model_copy(update={"expires": time.time() + self.seconds})
            try:
                if late and self._is_taken():
                    self.lost = True
                    return
                self.store.write(self.paths[-1], dump(renewed))
                # Who took over between the look and the write has seen no change: then the later one has it.
                if late and self._is_taken():
                    self.lost = True
                    self._give_back()
                    return
            except OSError:
                continue  # while the store is away nobody else can take it either
            self.holder, self._renewed = renewed, began

    def _give_back(self) -> None:
        self.store.write(self.paths[-1], dump(self.holder.model_copy(update={"expires": 0.0})))

    def _is_taken(self) -> bool:
        """Whether this process slept, or the store was away, for so long that another has it now."""
        return is_taken(self.paths[-1], [entry.path for entry in self.store.entries(layout.LEASES)])


def is_taken(mine: str, there: list[str]) -> bool:
    """Whether a later generation is among the paths that are there, or this one is not."""
    name, generation = parts(mine)
    return mine not in there or any(other == name and number > generation for other, number in map(parts, there))


def holder_here(seconds: float) -> Holder:
    return Holder(
        owner=uuid.uuid4().hex,
        host=process.host(),
        pid=os.getpid(),
        started=process.started(os.getpid()),
        seconds=seconds,
        expires=time.time() + seconds,
    )


def take(store: Store, name: str, seconds: float = 60.0) -> Lease | None:
    """A lease on a piece of work, kept alive by a heartbeat until released; None when another holds it."""
    me = holder_here(seconds)
    paths = take_files(store, name, me)
    return None if paths is None else Lease(store, paths, me)


def take_files(store: Store, name: str, me: Holder) -> list[str] | None:
    """The files of a lease that is now held by `me`, to be deleted in this order; None when another holds it."""
    first = layout.lease(name, 1)
    if store.create(first, dump(me)):
        return [first]
    found = generations(store, name)
    if any(holder.owner == me.owner or (me.driver and holder.driver == me.driver) for holder in found.values()):
        # A remote store may have carried out what it then reported as refused, or only after the release, when a second
        # try had long succeeded: the owner in the file decides, and a driver asks for nothing that it holds.
        return [first]
    if _is_live(store, name, found):
        return None
    # Earlier generations stay until the release: they keep those away whose listing is old (a network folder).
    start = max(found, default=0) + 1
    for number in range(start, start + ATTEMPTS):
        created = store.create(layout.lease(name, number), dump(me))
        known = generations(store, name)
        others = {other: holder for other, holder in known.items() if holder.owner != me.owner}
        created = created or (number in known and number not in others)
        if _is_live(store, name, others) or (created and number > 1 and not _keeps_first(store, name, me, others)):
            if created:
                # Both began in the moment of a release and saw different generations: the later one yields.
                store.delete(layout.lease(name, number))
            return None
        if created:
            there = generations(store, name) if number > 1 else {}
            earlier = [layout.lease(name, other) for other in sorted(there) if other < number]
            for path in earlier:
                OBSERVED.forget(store, path)
            return [*earlier, layout.lease(name, number)]
        # Something that is no lease is in the way, such as a folder: the next number is free.
    return None


def _keeps_first(store: Store, name: str, me: Holder, others: dict[int, Holder]) -> bool:
    """Whether the first generation keeps others away, by what is there or by a file that is made now."""
    if 1 in others:
        return True
    for _ in range(FIRST_ATTEMPTS):
        if store.create(layout.lease(name, 1), dump(me)):
            return True
        holder = generations(store, name).get(1)
        if holder is not None:
            return holder.owner == me.owner
    return True  # what is in the way can never be a lease, for nobody


def _is_live(store: Store, name: str, found: dict[int, Holder]) -> bool:
    """Every one is looked at: how long it has not changed counts from the first look."""
    look = Look(store)
    over = [look.is_over(layout.lease(name, number), one) for number, one in found.items()]
    return not all(over)


def delete_abandoned(store: Store, paths: Iterable[str]) -> None:
    """Files of leases that nobody held when they were listed, and nobody holds now.

    They are taken first, and deleted as on a release: who deletes the first generation while another takes the lease
    over lets a third start anew.
    """
    me = holder_here(60.0)
    for path in paths:
        name, taken = parts(path)[0], None
        if not name:  # somebody else's file
            continue
        if not layout.is_driver(name):
            try:
                taken = take_files(store, name, me)
            except OSError:  # a disk that is full: nobody else can take it either
                pass
            if taken is None and name in held(store):
                continue
        for one in dict.fromkeys([path, *(taken or [])]):  # a dead later generation is not among those taken
            store.delete(one)


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
