"""Optuna's side of a search: it proposes candidates, and writes a journal that optuna-dashboard opens."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial
from ray.tune.search.optuna import OptunaSearch

from sweep.search.candidates import Candidate, steps
from sweep.search.sampling import Distinct
from sweep.search.settings import GENERATION, METRICS, SearchSettings
from sweep.studies.grid import widened

logging.getLogger("ray.tune.search.optuna.optuna_search").setLevel(logging.ERROR)
optuna.logging.set_verbosity(optuna.logging.WARNING)


def searcher(
    settings: SearchSettings, generation: int, points: list[dict[str, Any]], earlier: Iterable[Candidate]
) -> OptunaSearch:
    """Ray's OptunaSearch that knows the candidates of earlier generations, and nothing else: it reads no file."""
    several = len(settings.objectives) > 1
    metrics: Any = [METRICS[goal] for goal in settings.objectives]
    storage = optuna.storages.InMemoryStorage()
    study = storage.create_new_study(_directions(settings), settings.id)
    for candidate in earlier:
        storage.create_new_trial(study, template_trial=_frozen(settings, candidate))
    return OptunaSearch(
        space=dict(settings.space),
        metric=metrics if several else metrics[0],
        mode=["max"] * len(metrics) if several else "max",
        points_to_evaluate=points,
        sampler=Distinct(settings.sampler, settings.space, settings.seeds[0], generation, startup=GENERATION),
        storage=storage,
        study_name=settings.id,
    )


class Journal:
    """A view of a search for optuna-dashboard, written by whoever leads it. Nothing is ever read from it.

    So whatever goes wrong with it is said and ends no sweep; it is written anew at the next opportunity.
    """

    def __init__(self, settings: SearchSettings, path: Path) -> None:
        self.settings, self.path = settings, path
        self._storage: optuna.storages.JournalStorage | None = None
        self._trials: list[int] = []  # Optuna's numbers of the candidates
        self._said = False
        self.is_begun = False

    @property
    def is_written(self) -> bool:
        return self._storage is not None

    def write(self, candidates: Iterable[Candidate]) -> None:
        """Write it anew: that of an earlier session may hold trials that a kill left running."""
        self.is_begun = True
        with self._harmless():
            self._storage = None
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self.path.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            self._free()
            storage = _storage(fresh)
            study = storage.create_new_study(_directions(self.settings), self.settings.id)
            self._trials = [
                storage.create_new_trial(study, template_trial=_frozen(self.settings, candidate))
                for candidate in candidates
            ]
            os.replace(fresh, self.path)
            self._storage = _storage(self.path)

    def report(self, candidate: Candidate) -> None:
        """Add what a candidate reached."""
        with self._harmless():
            if self._storage is None:
                return
            storage, trial, frozen = self._storage, self._trials[candidate.index], _frozen(self.settings, candidate)
            for step, value in frozen.intermediate_values.items():
                storage.set_trial_intermediate_value(trial, step, value)
            storage.set_trial_state_values(trial, frozen.state, frozen.values)

    def free(self) -> None:
        """A lock that is there was left by a killed process, and Optuna would wait 30 s for it."""
        with self._harmless():
            self._free()

    def _free(self) -> None:
        for lock in self.path.parent.glob(f"{self.path.stem}.*.lock*"):
            lock.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            yield
        except Exception as fault:  # of Optuna, of its lock, of the disk
            self._storage = None
            if not self._said:
                reason = f"{type(fault).__name__}: {fault}"
                print(f"{self.path} cannot be written ({reason}); the search goes on without it", file=sys.stderr)
                self._said = True


def _directions(settings: SearchSettings) -> list[StudyDirection]:
    return [StudyDirection.MAXIMIZE] * len(settings.objectives)


def _frozen(settings: SearchSettings, candidate: Candidate) -> optuna.trial.FrozenTrial:
    is_open = candidate.state == "open"
    failed = candidate.values is None and not is_open
    several = len(settings.objectives) > 1
    return create_trial(
        state=TrialState.RUNNING if is_open else TrialState.FAIL if failed else TrialState.COMPLETE,
        values=None if failed or is_open else candidate.values,
        params=candidate.hyperparameters,
        distributions={name: widened(item, candidate.hyperparameters[name]) for name, item in settings.space.items()},
        intermediate_values=None if several or is_open else steps(candidate),
    )


def _storage(path: Path) -> optuna.storages.JournalStorage:
    return optuna.storages.JournalStorage(JournalFileBackend(str(path)))
