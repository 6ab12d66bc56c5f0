"""Merging of manifests: running some methods of a study keeps the columns of its other methods."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from sweep.store import layout
from sweep.store.base import Store
from sweep.store.leases import take
from sweep.store.leftovers import selected_checkpoints
from sweep.store.records.manifest import Manifest, ReplacedColumn
from sweep.store.replaced import remembered

# Settings shared by all columns of a study. Manifests that differ in them describe different trials.
SHARED = ("dataset", "model", "train", "selection", "train_images", "test_images")


def agree(one: Manifest, other: Manifest) -> bool:
    return _shared(one) == _shared(other) and (one.epsilon, one.norm) == (other.epsilon, other.norm)


def _shared(manifest: Manifest) -> dict[str, Any]:
    """Return the shared settings without empty values: earlier versions may lack some keys."""
    parts = {key: manifest.study.get(key) for key in SHARED}
    return {
        key: {name: value for name, value in part.items() if value is not None} if isinstance(part, dict) else part
        for key, part in parts.items()
    }


def united(before: Manifest | None, now: Manifest) -> Manifest:
    """Return `now` extended by other methods of `before`, and by other seeds of its unchanged columns.

    Columns of `before` that are dropped are remembered as replaced.
    """
    if before is None:
        return now
    joined = _joined(before, now)
    columns = [*before.replaced, *now.replaced, *replaced_columns(before, joined)]
    return joined.model_copy(update={"replaced": remembered(columns, selected_checkpoints([joined]))})


def replaced_columns(before: Manifest, now: Manifest) -> list[ReplacedColumn]:
    """Return the columns of `before` that have models which `now` does not select."""
    earlier, selected = selected_checkpoints([before]), selected_checkpoints([now])
    trials: dict[str, list[str]] = defaultdict(list)
    for cell in before.cells:
        name = layout.short(cell.trial or "")
        if cell.trial is not None and earlier[name] - selected.get(name, set()):
            trials[cell.label].append(cell.trial)
    return [
        ReplacedColumn(
            label=label,
            config=before.config_by_label[label],
            trials=tuple(names),
            checkpoints=tuple(sorted(earlier[layout.short(names[0])])),
        )
        for label, names in trials.items()
        if label in before.config_by_label
    ]


def _joined(before: Manifest, now: Manifest) -> Manifest:
    if not agree(before, now):
        return now
    configs, earlier = now.config_by_label, before.config_by_label
    here = {(cell.label, cell.seed) for cell in now.cells}
    kept = [
        cell
        for cell in before.cells
        if (cell.label, cell.seed) not in here
        and configs.get(cell.label, earlier.get(cell.label)) == earlier.get(cell.label)
    ]
    if not kept:
        return now
    order = {label: place for place, label in enumerate([*earlier, *configs])}
    cells = sorted([*now.cells, *kept], key=lambda cell: (order.get(cell.label, len(order)), cell.seed))
    labels = {cell.label for cell in kept} - set(configs)
    methods = {
        **{label: entry for label, entry in before.study.get("methods", {}).items() if label in labels},
        **now.study.get("methods", {}),
    }
    searches = {entry.id.rpartition("-")[0] for entry in before.searches if entry.label in labels}
    settings = {label: entry for label, entry in before.study.get("search", {}).items() if label in searches}
    changed = {
        "cells": tuple(cells),
        "seeds": tuple(sorted({cell.seed for cell in cells})),
        "searches": (*now.searches, *(entry for entry in before.searches if entry.label in labels)),
        "config_by_label": {**configs, **{label: earlier[label] for label in sorted(labels & earlier.keys())}},
        "inner_attacks": {**before.inner_attacks, **now.inner_attacks},
        "study": {**now.study, "methods": methods, "search": {**now.study.get("search", {}), **settings}},
    }
    return now.model_copy(update=changed)


def write_manifest(store: Store, manifest: Manifest) -> None:
    """Merge a manifest into the stored one and write it. Concurrent writers are serialized."""
    with alone(store, f"studies-{manifest.name}"):
        store.write_record(united(store.usable(Manifest, manifest.path), manifest))


@contextlib.contextmanager
def alone(store: Store, name: str, patience: float = 15.0) -> Iterator[None]:
    """Keep other processes out while something is read and written; after `patience` seconds go on all the same."""
    end = time.monotonic() + patience
    while (lease := take(store, name, patience)) is None and time.monotonic() < end:
        time.sleep(0.05)
    with lease or contextlib.nullcontext():
        yield
