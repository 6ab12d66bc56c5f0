"""Searches of a study in its store: `searches/<id>/record.json`, and the journal that optuna-dashboard opens."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import search_spaces
from sweep.errors import UserError
from sweep.search.search import Search, Settings
from sweep.store.base import Store
from sweep.studies.model import Study
from sweep.trials import cells as plan
from sweep.trials.identity import canonical, trial_hash
from sweep.work.tasks import Claims

POLL_SECONDS = 2.0


def settings_of(study: Study, label: str) -> Settings:
    wanted = study.search[label]
    config = study.search_config(label, {})
    space = search_spaces.space(config.method, wanted.space)
    if not space:
        known = ", ".join(search_spaces.names())
        raise UserError(f"search of {label}: {config.method} has nothing to search; known: {known}")
    paper = search_spaces.paper_value(config.method, study.dataset, study.model) or {}
    return Settings(
        id=plan.search_id(study, label),
        label=label,
        method=config.method,
        space=space,
        paper_value=canonical({name: paper.get(name, config.hyperparameters[name]) for name in sorted(space)}),
        epochs=None if config.recipe.steps else config.recipe.epochs,
        sampler=wanted.sampler,
        candidates=wanted.candidates,
        seed=wanted.seed,
        pruner=wanted.pruner,
        objectives=wanted.objectives,
    )


def open_search(study: Study, label: str, store: Store, *, retry_failed: bool = False) -> Search:
    """The search as the store knows it, or a new one. Only one driver may have it open: claim it first."""
    settings = settings_of(study, label)
    path = f"searches/{settings.id}/journal.log"
    # Optuna appends to a real file; for a remote store it is made anew from the record and pushed.
    journal = store.local(path) or Path(tempfile.mkdtemp(prefix="robustsweep-search-")) / "journal.log"

    def hash_of(hyperparameters: dict[str, Any]) -> str:
        return trial_hash(study.search_config(label, hyperparameters))

    record = store.search_record(settings.id)
    if record and retry_failed:
        again = [{**one, "state": "open"} if one["state"] == "failed" else one for one in record["candidates"]]
        record = {**record, "candidates": again}
    return Search(settings, hash_of, journal, record)


def store_search(store: Store, search: Search) -> None:
    identity = search.settings.id
    store.write_json(f"searches/{identity}/record.json", search.record())
    if search.journal.exists():
        store.push_file(search.journal, f"searches/{identity}/journal.log")


class Searches:
    """The searches that are not settled yet. One that another driver leads is looked at now and then."""

    def __init__(
        self,
        study: Study,
        store: Store,
        claims: Claims,
        settled: dict[str, dict[str, Any]],
        retry_failed: bool = False,
    ) -> None:
        self.study, self.store, self.claims, self.retry_failed = study, store, claims, retry_failed
        self.open: dict[str, Search | None] = {label: None for label in study.searches() if label not in settled}
        self._next_look = 0.0

    def advance(self) -> tuple[list[Search], list[tuple[str, dict[str, Any] | None, str]]]:
        """Searches with new candidates, and searches that ended: label, chosen values (None if none), reason."""
        grown, ended = [], []
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + POLL_SECONDS
            for label in [label for label, search in self.open.items() if search is None]:
                identity = plan.search_id(self.study, label)
                record = self.store.search_record(identity)
                if record and (record["status"] == "done" or (record["status"] == "failed" and not self.retry_failed)):
                    ended.append((label, record["chosen"], record["reason"]))
                elif self.claims.take(f"searches-{identity}"):
                    search = open_search(self.study, label, self.store, retry_failed=self.retry_failed)
                    self.open[label] = search
                    if search.open():  # an earlier session proposed them
                        search.advance()
                        grown.append(search)
        for label, mine in self.open.items():
            if mine is None:
                continue
            if mine.advance():
                store_search(self.store, mine)
                grown.append(mine)
            if mine.finished:
                store_search(self.store, mine)
                winner, reason = mine.chosen()
                ended.append((label, winner.hyperparameters if winner else None, reason))
                self.claims.release(f"searches-{mine.settings.id}")
        for label, _, _ in ended:
            self.open.pop(label)
        return grown, ended
