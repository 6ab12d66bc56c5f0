"""Checks that all numbers in a table come from the same data set, compared by SHA-256."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain

from pydantic import ValidationError

from sweep.store import layout
from sweep.store.base import Store
from sweep.store.records.trial import Progress, TrialRecord

Recorded = Mapping[str, Mapping[str, str]]  # name of a data set or file -> SHA-256 -> a trial that recorded it


def recorded_data(store: Store, trials: Iterable[str]) -> Recorded:
    """Return the data on which finished and interrupted trials were trained. Older trials did not record it."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    left = dict.fromkeys(trials)
    records = store.records(TrialRecord, map(layout.trial_record, left), lambda fault: None)
    known: Iterable[TrialRecord | Progress] = chain(records, _cut_off(store, left))
    for one in known:
        for name, sha256 in one.data.items():
            found[name].setdefault(sha256, one.trial)
    return found


def _cut_off(store: Store, trials: Iterable[str]) -> Iterator[Progress]:
    """Yield the progress notes of interrupted trials. Unreadable notes are skipped."""
    paths = [layout.trial_file(trial, layout.PROGRESS) for trial in trials]
    for _, note in store.read_many(paths, lambda fault: None):
        with suppress(ValidationError):
            yield Progress.model_validate_json(note)


def data_faults(recorded: Recorded, found: Mapping[str, str], folder: object, instead: str) -> list[str]:
    """Return messages where the data in the folder differs from that of trials. `instead` offers another solution."""
    return [
        data_fault(name, folder, f"trial {layout.short(trial)} was trained on", (expected, sha256), instead)
        for name, sha256 in found.items()
        for expected, trial in recorded.get(name, {}).items()
        if expected != sha256
    ]


def data_fault(name: str, folder: object, whose: str, differing: tuple[str, str], instead: str) -> str:
    """Return a message that data differs. `differing` holds the recorded SHA-256 and that of the data in the folder."""
    expected, found = differing
    return (
        f"data set {name!r} in {folder or 'data'} is not the one that {whose}: its record expects sha256 "
        f"{expected[:16]}…, this one has {found[:16]}…; one table shows one data set: name the folder of the original "
        f"with --data-dir, or {instead}"
    )


def node_fault(driver: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """Return a message if a node has other data than the driver, else None."""
    differing = [
        f"{name!r} (sha256 {found[name][:16]}…, the driver's has {sha256[:16]}…)"
        for name, sha256 in driver.items()
        if found.get(name, sha256) != sha256
    ]
    return f"other data under the name {', '.join(differing)}; give every node the same files" if differing else None
