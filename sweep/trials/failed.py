"""Failed trials, and releasing them for another attempt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sweep.errors import UserError
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.records.manifest import PlannedCell
from sweep.studies import nearest
from sweep.studies.options import parse_names, parse_seeds


@dataclass(frozen=True)
class FailedTrial:
    """A trial whose record is invalid or says that it failed; `cells` are the study cells that need it."""

    place: str
    state: str
    cells: tuple[PlannedCell, ...]

    @property
    def title(self) -> str:
        return ", ".join(f"{cell.label} seed {cell.seed}" for cell in self.cells) or "a search's candidate"


def failed_trials(store: Store, study: str | None, methods: str | None, seeds: str | None) -> list[FailedTrial]:
    """Return failed trials, filtered by study, methods and seeds as given on a command line; None means all."""
    cells = _cells(store, study)
    labels = {cell.label for found in cells.values() for cell in found}
    wanted = labels if methods is None else _known_labels(methods, labels)
    numbers = None if seeds is None else set(parse_seeds(seeds))
    found = []
    for place, state in sorted(store.trial_states().items()):
        asking = [
            cell for cell in cells.get(place, ()) if cell.label in wanted and (numbers is None or cell.seed in numbers)
        ]
        if state in ("failed", "broken") and (asking or not (study or methods or seeds)):
            found.append(FailedTrial(place, state, tuple(asking)))
    return found


def set_free(store: Store, failed: FailedTrial) -> None:
    """Release a trial for another attempt: move its record to a numbered failure record, or to `broken/`."""
    path = layout.trial_record(failed.place)
    if failed.state == "broken":
        store.set_aside(path)
        return
    number = 1
    while store.exists(layout.failed_record(failed.place, number)):
        number += 1
    store.write(layout.failed_record(failed.place, number), store.read(path))
    store.delete(path)


def _known_labels(methods: str, labels: set[str]) -> set[str]:
    wanted = parse_names(methods)
    if not wanted:
        raise UserError(f"--methods {methods!r} names no method; leave it out for all")
    for label in wanted:
        if label not in labels:
            raise UserError(f"--methods: unknown {label!r}{nearest(label, labels)} known: {', '.join(sorted(labels))}")
    return set(wanted)


def _cells(store: Store, study: str | None) -> Mapping[str, list[PlannedCell]]:
    """Map the folder name of each trial to the cells that need it."""
    manifests = store.manifests()
    if study is not None and study not in manifests:
        known = ", ".join(sorted(manifests)) or "none"
        raise UserError(f"store {store.uri} has no study {study!r}{nearest(study, manifests)} known: {known}")
    cells: dict[str, list[PlannedCell]] = defaultdict(list)
    for manifest in manifests.values() if study is None else [manifests[study]]:
        for cell in manifest.cells:
            if cell.trial:
                cells[layout.short(cell.trial)].append(cell)
    return cells
