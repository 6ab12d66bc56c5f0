"""Who holds which lease: the files below `leases/`, and whether those who wrote them are still there.

Clocks of two machines may differ by hours. So the time in a file is for people; whether another machine's lease has
run out is judged by its not having changed, for as long as it lasts, on the clock of whoever wants it. A driver's
leases all name one file that it renews: what holds for that file holds for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweep.store import layout, process
from sweep.store.base import Entry, Store

UNFILLED_SECONDS = 10.0


class Holder(BaseModel):
    """Who holds a lease, and until when."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    owner: str
    host: str = ""
    pid: int = 0
    started: str = ""
    driver: str = ""  # whose sign of life is this lease's too
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


OBSERVED = Observed()


class Look:
    """At the leases as they are now: each driver's sign of life is read once, each process looked for once.

    `read` finds the holder in a sign of life, where somebody knows what has changed since the look before.
    """

    def __init__(self, store: Store, read: Callable[[str], Holder | None] | None = None) -> None:
        self.store = store
        self._read = read or (lambda path: load(store, path, time.time()))
        self._silent: dict[str, bool | None] = {}  # drivers; None of one whose sign of life is lost
        self._dead: dict[tuple[str, int, str], bool] = {}

    def is_over(self, path: str, holder: Holder) -> bool:
        if not holder.expires or self._is_dead(holder):
            return True
        silent = self._is_silent(holder.driver) if holder.driver else None
        # It renews this one by itself; or its driver's sign of life is lost, and is waited for.
        return OBSERVED.is_over(self.store, path, holder) if silent is None else silent

    def _is_silent(self, driver: str) -> bool | None:
        if driver not in self._silent:
            path = layout.lease(driver, 1)
            sign = self._read(path)
            self._silent[driver] = self.is_over(path, sign) if sign and sign.owner and not sign.driver else None
        return self._silent[driver]

    def _is_dead(self, holder: Holder) -> bool:
        process = (holder.host, holder.pid, holder.started)
        if process not in self._dead:
            self._dead[process] = holder.is_dead
        return self._dead[process]


def elapsed() -> float:
    """Seconds that go on while a machine sleeps, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def held(store: Store) -> dict[str, Holder]:
    """Who seems to hold what; expired and released leases are left out."""
    return _held(_loaded(store))


def abandoned(store: Store, old: float) -> list[Entry]:
    """Files of leases that nobody holds: given back, of dead processes of this machine, or last renewed before `old`.

    Also what cannot be read and has been waited for: whoever wants it takes it over by the same rule.

    Also another machine's sign of life that this process has seen unchanged for too long: one that only slept writes it
    again.
    """
    loaded, look = _loaded(store), Look(store)
    names = _held(loaded)
    renewed = {parts(entry.path)[0]: entry.modified for entry, _ in loaded}
    return [
        entry
        for entry, holder in loaded
        if layout.is_lease(entry.path)
        and (name := parts(entry.path)[0]) not in names
        and (
            holder.is_dead
            or not holder.expires
            or not holder.owner  # never filled, or unreadable, and waited for
            or max(entry.modified, renewed.get(holder.driver, 0.0)) < old
            or (layout.is_driver(name) and holder.owner and look.is_over(entry.path, holder))
        )
    ]


def _loaded(store: Store) -> list[tuple[Entry, Holder]]:
    found = ((entry, load(store, entry.path, entry.modified)) for entry in store.entries(layout.LEASES))
    return [(entry, holder) for entry, holder in found if holder]


def _held(loaded: list[tuple[Entry, Holder]]) -> dict[str, Holder]:
    drivers = {name: holder for entry, holder in loaded if layout.is_driver(name := parts(entry.path)[0])}
    return {
        name: holder
        for entry, holder in sorted(loaded, key=lambda one: parts(one[0].path))
        if (name := parts(entry.path)[0]) and name not in drivers and not _seems_over(holder, drivers)
    }


def _seems_over(holder: Holder, drivers: dict[str, Holder]) -> bool:
    if not holder.expires or holder.is_dead:
        return True
    return drivers.get(holder.driver, holder).seems_over


def parts(path: str) -> tuple[str, int]:
    """Name and generation in the path of a lease."""
    name, _, generation = path.removeprefix(f"{layout.LEASES}/").removesuffix(".json").rpartition(".")
    return (name, int(generation)) if generation.isdecimal() and len(generation) < 10 else ("", 0)


def generations(store: Store, name: str) -> dict[int, Holder]:
    found = {}
    start = f"{layout.LEASES}/{name}."
    for entry in store.entries(layout.LEASES):
        if not entry.path.startswith(start):  # hundreds of others, taken apart only where it matters
            continue
        other, generation = parts(entry.path)
        if other == name and (holder := load(store, entry.path, entry.modified)):
            found[generation] = holder
    return found


def load(store: Store, path: str, modified: float) -> Holder | None:
    try:
        return Holder.model_validate_json(store.read(path))
    except FileNotFoundError:
        return None
    except ValidationError:
        # Created but not yet filled: its maker is alive, or died within that moment.
        return Holder(owner="", expires=modified + UNFILLED_SECONDS)


def dump(holder: Holder) -> bytes:
    return holder.model_dump_json().encode()
