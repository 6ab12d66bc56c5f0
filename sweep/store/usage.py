"""Device time used by a study: one note per driver that ever worked on it. Notes are never deleted."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable

from pydantic import Field, ValidationError

from sweep.store import layout
from sweep.store.base import Skip, Store
from sweep.store.encoding import BrokenRecord, decode, encode
from sweep.store.records.record import Part

WRITE_SECONDS = 60.0
HOUR = 3600.0


class Usage(Part):
    """The device time used by one driver. Only that driver writes it."""

    driver: str
    device_seconds: float = Field(0.0, ge=0, allow_inf_nan=False)
    budget_hours: float | None = None  # the limit for all drivers together
    updated: float = 0.0


def usages(store: Store, study: str, skip: Skip | None = None) -> list[Usage]:
    """Return the notes of all drivers, latest last. Broken ones are passed to `skip`, or printed, and not counted."""
    found = []
    for path, data in store.read_many(store.paths(layout.usage_folder(study))):
        try:
            # Notes of earlier versions have no checksum.
            is_old = b'"sha256":' not in data
            found.append(Usage.model_validate_json(data) if is_old else Usage.model_validate(decode(path, data)))
        except (BrokenRecord, ValidationError) as fault:
            broken = fault if isinstance(fault, BrokenRecord) else BrokenRecord(path, "keys are missing or wrong")
            (skip or _name)(broken)
    return sorted(found, key=lambda one: one.updated)


def _name(fault: BrokenRecord) -> None:
    print(f"{fault}; its device-hours are not counted", file=sys.stderr, flush=True)


def used_hours(notes: Iterable[Usage]) -> float:
    return sum(note.device_seconds for note in notes) / HOUR


def budget_left(notes: list[Usage]) -> tuple[float, float | None]:
    """Return the device-hours used and those remaining of the most recent budget (None without a budget)."""
    used = used_hours(notes)
    limit = notes[-1].budget_hours if notes else None
    return used, None if limit is None else max(0.0, limit - used)


class Budget:
    """A limit on device-hours. Every minute it stores this driver's usage and reads that of the others."""

    def __init__(self, store: Store, study: str, limit: float | None, busy_seconds: Callable[[], float]) -> None:
        self.store, self.study, self.limit, self.busy_seconds = store, study, limit, busy_seconds
        self.driver = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._others = used_hours(usages(store, study))
        self._next = time.monotonic() + WRITE_SECONDS

    @property
    def used(self) -> float:
        """Return the device-hours used by all drivers."""
        return self._others + self.busy_seconds() / HOUR

    def may_start(self) -> bool:
        return self.limit is None or self.used < self.limit

    def update(self) -> None:
        """Write the usage if a minute has passed. It is cheap and may be called at any rate."""
        if time.monotonic() >= self._next:
            self.write()

    def write(self) -> None:
        self._next = time.monotonic() + WRITE_SECONDS
        note = Usage(
            driver=self.driver,
            device_seconds=self.busy_seconds(),
            budget_hours=self.limit,
            updated=time.time(),
        )
        self.store.write(layout.usage(self.study, self.driver), encode(note.model_dump()))
        notes = usages(self.store, self.study)
        self._others = used_hours(note for note in notes if note.driver != self.driver)
