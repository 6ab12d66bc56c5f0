"""Numbers of one table are made on one data set, by SHA-256: what records say of theirs, and what is there instead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain

from pydantic import ValidationError

from sweep.store import layout
from sweep.store.base import Store
from sweep.store.records.trial import Progress, TrialRecord

Recorded = Mapping[str, Mapping[str, str]]  # name of a data set or file -> SHA-256 -> a trial that says so


def recorded_data(store: Store, trials: Iterable[str]) -> Recorded:
    """What the finished ones of these trials, and those that were cut off, were trained on. Older ones do not say."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    left = dict.fromkeys(trials)
    records = store.records(TrialRecord, map(layout.trial_record, left), lambda fault: None)
    known: Iterable[TrialRecord | Progress] = chain(records, _cut_off(store, left))
    for one in known:
        for name, sha256 in one.data.items():
            found[name].setdefault(sha256, one.trial)
    return found


def _cut_off(store: Store, trials: Iterable[str]) -> Iterator[Progress]:
    """Their notes are removed when they end; one that cannot be read says nothing."""
    paths = [layout.trial_file(trial, layout.PROGRESS) for trial in trials]
    for _, note in store.read_many(paths, lambda fault: None):
        with suppress(ValidationError):
            yield Progress.model_validate_json(note)


def data_faults(recorded: Recorded, found: Mapping[str, str], folder: object, instead: str) -> list[str]:
    """Where what is in the folder differs from what trials were trained on; `instead` is another way out."""
    return [
        data_fault(name, folder, f"trial {layout.short(trial)} was trained on", (expected, sha256), instead)
        for name, sha256 in found.items()
        for expected, trial in recorded.get(name, {}).items()
        if expected != sha256
    ]


def data_fault(name: str, folder: object, whose: str, differing: tuple[str, str], instead: str) -> str:
    """`differing` are the SHA-256 that is recorded and the one of what is in the folder."""
    expected, found = differing
    return (
        f"data set {name!r} in {folder or 'data'} is not the one that {whose}: its record expects sha256 "
        f"{expected[:16]}…, this one has {found[:16]}…; one table shows one data set: name the folder of the original "
        f"with --data-dir, or {instead}"
    )


def node_fault(driver: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """Where a node has other data than the driver."""
    differing = [
        f"{name!r} (sha256 {found[name][:16]}…, the driver's has {sha256[:16]}…)"
        for name, sha256 in driver.items()
        if found.get(name, sha256) != sha256
    ]
    return f"other data under the name {', '.join(differing)}; give every node the same files" if differing else None
