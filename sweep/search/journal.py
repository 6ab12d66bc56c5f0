"""Optuna in a search: proposing candidates, and writing a journal for optuna-dashboard."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial
from ray.tune.search.optuna import OptunaSearch

from sweep.search.candidates import Candidate, steps
from sweep.search.compat import break_lock, open_journal, settle_trial, write_study
from sweep.search.sampling import Distinct
from sweep.search.settings import GENERATION, METRICS, SearchSettings
from sweep.studies.grid import widened

optuna.logging.set_verbosity(optuna.logging.WARNING)


def searcher(
    settings: SearchSettings, generation: int, points: list[dict[str, Any]], earlier: Iterable[Candidate]
) -> OptunaSearch:
    """Return an OptunaSearch of Ray that knows the candidates of earlier generations. It reads no files."""
    several = len(settings.objectives) > 1
    metrics: Any = [METRICS[goal] for goal in settings.objectives]
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, study_name=settings.id, directions=_directions(settings))
    study.add_trials(_frozen(settings, candidate) for candidate in earlier)
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
    """A view of a search for optuna-dashboard, written by the driver that leads it. It is never read back.

    A failure to write it is therefore reported but does not end the sweep. It is rewritten at the next opportunity.
    """

    def __init__(self, settings: SearchSettings, path: Path) -> None:
        self.settings, self.path = settings, path
        self._fresh = path.with_suffix(".new")  # written here until complete
        self._storage: optuna.storages.JournalStorage | None = None
        self._trials: list[int] = []  # Optuna's identifiers of the candidates
        self._said = False
        self.is_begun = False

    @property
    def is_written(self) -> bool:
        return self._storage is not None

    def write(self, candidates: Iterable[Candidate]) -> None:
        """Rewrite the journal. An earlier one may contain trials that a killed session left running."""
        self.is_begun = True
        with self._harmless():
            self._storage = None
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fresh.unlink(missing_ok=True)
            self._free()
            trials = [_frozen(self.settings, candidate) for candidate in candidates]
            self._trials = write_study(open_journal(self._fresh), self.settings.id, _directions(self.settings), trials)
            os.replace(self._fresh, self.path)
            self._storage = open_journal(self.path)

    def report(self, candidate: Candidate) -> None:
        """Write the result of a candidate."""
        with self._harmless():
            if self._storage is None:
                return
            settle_trial(self._storage, self._trials[candidate.index], _frozen(self.settings, candidate))

    def free(self) -> None:
        """Remove a lock that a killed process left behind. Optuna would wait 30 s for it."""
        with self._harmless():
            self._free()

    def _free(self) -> None:
        for path in (self.path, self._fresh):
            break_lock(path)

    @contextlib.contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            yield
        except Exception as fault:  # raised by Optuna, its lock or the disk
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
