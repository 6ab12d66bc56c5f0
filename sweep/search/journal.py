"""Optuna's side of a search: it proposes candidates, and writes a journal that optuna-dashboard opens."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial
from ray.tune.search.optuna import OptunaSearch

from sweep.search.candidates import Candidate, steps
from sweep.search.sampling import Distinct
from sweep.search.settings import GENERATION, METRICS, SearchSettings
from sweep.studies.grid import widened

logging.getLogger("ray.tune.search.optuna.optuna_search").setLevel(logging.ERROR)
optuna.logging.set_verbosity(optuna.logging.WARNING)


class Journal:
    """Whoever leads the search writes it alone."""

    def __init__(self, settings: SearchSettings, path: Path) -> None:
        self.settings, self.path = settings, path

    def searcher(self, generation: int, points: list[dict[str, Any]]) -> OptunaSearch:
        several = len(self.settings.objectives) > 1
        metrics: Any = [METRICS[goal] for goal in self.settings.objectives]
        return OptunaSearch(
            space=dict(self.settings.space),
            metric=metrics if several else metrics[0],
            mode=["max"] * len(metrics) if several else "max",
            points_to_evaluate=points,
            sampler=Distinct(
                self.settings.sampler, self.settings.space, self.settings.seeds[0], generation, startup=GENERATION
            ),
            storage=_storage(self.path),
            study_name=self.settings.id,
        )

    def report(self, searcher: OptunaSearch, candidate: Candidate) -> None:
        if len(self.settings.objectives) == 1:
            for step, value in steps(candidate).items():
                searcher.on_trial_result(candidate.id, {self.settings.metric: value, "training_iteration": step})
        result = dict(zip((METRICS[goal] for goal in self.settings.objectives), candidate.values or (), strict=False))
        searcher.on_trial_complete(candidate.id, result or None, error=candidate.values is None)

    def rebuild(self, candidates: Iterable[Candidate]) -> None:
        """That of an earlier session may hold trials that a kill left running: written anew from the record."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        self.free()
        study = optuna.create_study(
            storage=_storage(fresh),
            study_name=self.settings.id,
            directions=["maximize"] * len(self.settings.objectives),
        )
        for candidate in candidates:
            study.add_trial(self._frozen(candidate))
        os.replace(fresh, self.path)

    def free(self) -> None:
        """A lock that is there was left by a killed process, and Optuna would wait 30 s for it."""
        for lock in self.path.parent.glob(f"{self.path.stem}.*.lock*"):
            lock.unlink(missing_ok=True)

    def _frozen(self, candidate: Candidate) -> optuna.trial.FrozenTrial:
        failed = candidate.values is None
        several = len(self.settings.objectives) > 1
        return create_trial(
            state=TrialState.FAIL if failed else TrialState.COMPLETE,
            values=None if failed else candidate.values,
            params=candidate.hyperparameters,
            distributions={
                name: widened(item, candidate.hyperparameters[name]) for name, item in self.settings.space.items()
            },
            intermediate_values=None if several else steps(candidate),
        )


def _storage(path: Path) -> optuna.storages.JournalStorage:
    return optuna.storages.JournalStorage(JournalFileBackend(str(path)))
