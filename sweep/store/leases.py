"""Leases on pieces of work, so that two drivers on one store never compute the same cell.

A claim is a file `claims/<name>.<generation>.json`. Who wants to take over an expired one creates the next
generation, which only one writer can do; the holder alone rewrites its own. So no step needs a lock, and a
process that dies at any point leaves at worst a lease that runs out.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweep.store.base import Store

FOLDER = "claims"


class Claim:
    """Held until `release`; a thread renews it. `lost` tells that another took over (this process slept too long)."""

    def __init__(self, store: Store, paths: list[str], facts: dict[str, Any], seconds: float) -> None:
        self.store, self.paths, self.facts, self.seconds = store, paths, facts, seconds
        self.lost = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"claim {paths[-1]}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.lost:
            return
        if time.time() < self.facts["expires"] - self.seconds / 3:
            for path in self.paths:
                self.store.delete(path)
        else:
            # Somebody may just be creating the next generation: deleting this one could let a third start anew.
            self.store.write(self.paths[-1], _dump({**self.facts, "expires": 0.0}))

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _beat(self) -> None:
        while not self._stop.wait(self.seconds / 3):
            if time.time() > self.facts["expires"]:
                self.lost = True
                return
            facts = {**self.facts, "expires": time.time() + self.seconds}
            try:
                self.store.write(self.paths[-1], _dump(facts))
            except OSError:
                continue  # the store may come back before the lease runs out
            self.facts = facts


class ClaimFile:
    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name = store, name

    def take(self, seconds: float) -> Claim | None:
        found = self._generations()
        if any(not _is_over(facts) for facts in found.values()):
            return None
        # Earlier generations stay until the release: they keep those away whose listing is old (a network folder).
        number = max(found, default=0) + 1
        facts = {**_me(), "owner": uuid.uuid4().hex, "expires": time.time() + seconds}
        if not self.store.create(self._path(number), _dump(facts)):
            return None
        others = {other: known for other, known in self._generations().items() if other != number}
        if any(not _is_over(known) for known in others.values()):
            # Both began in the moment of a release and saw different generations: the later one yields.
            self.store.delete(self._path(number))
            return None
        return Claim(self.store, [*map(self._path, sorted(others)), self._path(number)], facts, seconds)

    def _path(self, generation: int) -> str:
        return f"{FOLDER}/{self.name}.{generation}.json"

    def _generations(self) -> dict[int, dict[str, Any]]:
        found = {}
        for entry in self.store.entries(FOLDER):
            name, generation = _parts(entry.path)
            if name == self.name and (facts := _load(self.store, entry.path, entry.modified)):
                found[generation] = facts
        return found

    @staticmethod
    def held(store: Store) -> dict[str, dict[str, Any]]:
        newest: dict[str, tuple[int, dict[str, Any]]] = {}
        for entry in store.entries(FOLDER):
            name, generation = _parts(entry.path)
            facts = _load(store, entry.path, entry.modified)
            if name and facts and generation > newest.get(name, (0, {}))[0]:
                newest[name] = (generation, facts)
        return {name: facts for name, (_, facts) in newest.items() if not _is_over(facts)}


@contextmanager
def alone(store: Store, name: str, patience: float = 15.0) -> Iterator[None]:
    """Read and write while no other process does the same; one that takes too long is waited for no longer."""
    end = time.monotonic() + patience
    while (claim := store.claim(name, patience)) is None and time.monotonic() < end:
        time.sleep(0.05)
    try:
        yield
    finally:
        if claim is not None:
            claim.release()


def _parts(path: str) -> tuple[str, int]:
    name, _, generation = path.removeprefix(f"{FOLDER}/").removesuffix(".json").rpartition(".")
    return (name, int(generation)) if generation.isdigit() else ("", 0)


def _load(store: Store, path: str, modified: float) -> dict[str, Any] | None:
    try:
        data = store.read(path)
    except FileNotFoundError:
        return None
    try:
        facts = json.loads(data)
        return {**facts, "expires": float(facts["expires"])}
    except (ValueError, KeyError, TypeError):
        # Created but not yet filled: its maker is alive, or died within that moment.
        return {"owner": "", "host": "", "pid": 0, "expires": modified + 10.0}


def _is_over(facts: dict[str, Any]) -> bool:
    if time.time() > facts["expires"]:
        return True
    return facts.get("host") == _host() and not _is_alive(facts.get("pid", 0), facts.get("started"))


def _me() -> dict[str, Any]:
    return {"host": _host(), "pid": os.getpid(), "started": _started(os.getpid())}


@cache
def _host() -> str:
    """This machine, boot and process namespace: within it a process number says whether a holder still lives."""
    try:
        place = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8] + os.readlink("/proc/self/ns/pid")
    except OSError:
        place = ""
    return f"{socket.gethostname()} {place}".strip()


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks: tells a reused process number from the holder."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_alive(pid: int, started: str | None) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return not started or _started(pid) == started


def _dump(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True).encode()
