"""The searches of a study in its store: their records, and the journals for optuna-dashboard."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.search.pruning import first_drop, rungs
from sweep.search.search import Search
from sweep.search.settings import SearchSettings
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.leases import Lease, take
from sweep.store.records.search import CandidateEntry, SearchRecord
from sweep.studies.model import Study
from sweep.trials.candidates import searched_space
from sweep.trials.cost import batches
from sweep.trials.identity import search_id, trial_hash

POLL_SECONDS = 2.0


def settings_of(study: Study, label: str) -> SearchSettings:
    wanted = study.search[label]
    config, found = study.search_config(label, {}), searched_space(study, label)
    recipe = config.recipe
    drop = None if recipe.steps else first_drop(recipe, batches(config))
    return SearchSettings(
        id=search_id(study, label),
        label=label,
        method=config.method,
        space=found.space,
        paper_value=found.paper,
        own_value=found.own,
        rungs=tuple(rungs(recipe.epochs, drop)),
        sampler=wanted.sampler,
        candidates=wanted.candidates,
        seeds=wanted.seeds,
        pruner=wanted.pruner,
        objectives=wanted.objectives,
    )


def open_search(study: Study, label: str, store: Store, *, retry_failed: bool = False) -> Search:
    """Open the stored search, or a new one. Take its lease first: only one driver may have it open."""
    settings = settings_of(study, label)
    # Optuna appends to a local file. For a remote store the file is rebuilt from the record and uploaded.
    journal = (
        store.local(layout.search_journal(settings.id))
        or Path(tempfile.mkdtemp(prefix="robustsweep-search-")) / "journal.log"
    )

    def hash_of(hyperparameters: dict[str, Any], seed: int) -> str:
        return trial_hash(study.search_config(label, hyperparameters, seed))

    record = stored_search(store, settings.id)
    if record and retry_failed:
        again = tuple(_reopened(one) if one.state == "failed" else one for one in record.candidates)
        record = record.model_copy(update={"candidates": again})
    return Search(settings, hash_of, journal, record)


def _reopened(entry: CandidateEntry) -> CandidateEntry:
    runs = tuple(run.model_copy(update={"state": "open"}) if run.state == "failed" else run for run in entry.runs)
    return entry.model_copy(update={"state": "open", "runs": runs})


def stored_search(store: Store, search: str) -> SearchRecord | None:
    """Load a search. Return None if it is broken: it is then rebuilt from the stored records of its candidates."""
    return store.usable(SearchRecord, layout.search_record(search))


def store_search(store: Store, search: Search) -> None:
    store.write_record(search.record())
    if search.journal.path.exists():
        store.push_file(search.journal.path, layout.search_journal(search.settings.id))


@dataclass(frozen=True)
class Ended:
    """A finished search. `chosen` is None if no candidate was trained to the end."""

    label: str
    chosen: dict[str, Any] | None
    reason: str


class OpenSearches:
    """The unfinished searches of a study. Those that other drivers lead are polled."""

    def __init__(
        self,
        study: Study,
        store: Store,
        settled: dict[str, dict[str, Any]],
        retry_failed: bool = False,
    ) -> None:
        self.study, self.store, self.retry_failed = study, store, retry_failed
        self._leases: dict[str, Lease] = {}  # leases on the searches that this driver leads
        self.open: dict[str, Search | None] = {label: None for label in study.searches() if label not in settled}
        self._next_look = 0.0

    def advance(self) -> tuple[list[Search], list[Ended]]:
        """Advance all open searches. Return those with new candidates, and those that ended."""
        grown, ended = [], []
        if self.open and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + POLL_SECONDS
            unopened = [label for label, search in self.open.items() if search is None]
            for label in unopened:
                identity = search_id(self.study, label)
                record = stored_search(self.store, identity)
                if record and (record.status == "done" or (record.status == "failed" and not self.retry_failed)):
                    ended.append(Ended(label, record.chosen, record.reason))
                elif lease := take(self.store, layout.search_lease(identity)):
                    self._leases[label] = lease
                    search = open_search(self.study, label, self.store, retry_failed=self.retry_failed)
                    search.journal.free()
                    self.open[label] = search
                    if search.open():  # proposed by an earlier session
                        search.advance()
                        grown.append(search)
        for label, mine in self.open.items():
            if mine is None:
                continue
            if self._leases[label].lost:  # this machine was suspended, and another driver took over
                self._leases.pop(label)
                self.open[label] = None
                continue
            if mine.advance():
                store_search(self.store, mine)
                grown.append(mine)
            if mine.finished:
                store_search(self.store, mine)
                winner, reason = mine.chosen()
                ended.append(Ended(label, winner.hyperparameters if winner else None, reason))
        for end in ended:
            self.leave(end.label)
        return grown, ended

    def leave(self, label: str) -> None:
        """Close a search that is finished or has to wait for another run."""
        self.open.pop(label, None)
        if label in self._leases:
            self._leases.pop(label).release()

    def close(self) -> None:
        for label in list(self._leases):
            self._leases.pop(label).release()
