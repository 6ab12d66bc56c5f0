"""The candidates of a sweep's searches: queued as they are proposed, told to their search as they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweep.search.search import Search
from sweep.search.stored import Ended, OpenSearches, store_search
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.drivers import HeldLeases
from sweep.store.records.record import CurveRow
from sweep.store.records.search import CandidateRecord
from sweep.store.records.trial import TrialRecord
from sweep.studies.model import Study
from sweep.trials.candidates import most_candidates
from sweep.trials.cost import PRUNED_SHARE, training_cost
from sweep.work.ready import Ready
from sweep.work.tasks import CandidateTraining
from sweep.work.training import forget


class Candidates:
    def __init__(
        self,
        study: Study,
        store: Store,
        leases: HeldLeases,
        ready: Ready,
        settled: dict[str, dict[str, Any]],
        retry_failed: bool,
    ) -> None:
        self.study, self.store, self.leases, self.ready = study, store, leases, ready
        self.searches = OpenSearches(study, store, leases, settled, retry_failed)

    def advance(self) -> list[Ended]:
        """Queue what the searches propose now; those that ended."""
        grown, ended = self.searches.advance()
        for search in grown:
            self._queue(search)
        return ended

    def ended(self, task: CandidateTraining, found: Sequence[Any] = ()) -> None:
        """`found` is its record where a worker of this driver wrote it."""
        record: TrialRecord | CandidateRecord | None = found[0] if found else self.store.trial_record(task.trial)
        if record is None:
            record = self.store.candidate_record(task.search, task.trial)
            forget(self.store, task.trial)  # its worker may have been killed before it could
        assert record is not None
        self._tell(task, record.status, record.curve)

    def failed(self, task: CandidateTraining) -> None:
        self._tell(task, "failed", ())

    def left_alone(self, task: CandidateTraining) -> None:
        """What a search chooses never depends on machines: it waits for a run that can train this candidate."""
        search = self.searches.open.pop(task.label, None)
        if search is not None:
            self.leases.release(layout.search_lease(search.settings.id))

    def expected_cost(self) -> float:
        """Of the trainings that the open searches have still to propose."""
        found = 0.0
        for label, search in self.searches.open.items():
            settings = self.study.search[label]
            missing = search.wanted - len(search.candidates) if search else most_candidates(self.study, label)
            trainings = missing * len(settings.seeds)
            found += PRUNED_SHARE * trainings * training_cost(self.study.search_config(label, {}))
        return found

    def _queue(self, search: Search) -> None:
        settings = search.settings
        for candidate, run in search.trainings():
            config = self.study.search_config(settings.label, candidate.hyperparameters, run.seed)
            self.ready.add(
                CandidateTraining(
                    settings.label,
                    config,
                    run.trial,
                    search=settings.id,
                    index=candidate.index,
                    cut_offs=search.cut_offs(candidate) if candidate.waits else {},
                    metric=settings.metric,
                )
            )

    def _tell(self, task: CandidateTraining, state: str, curve: Sequence[CurveRow]) -> None:
        search = self.searches.open.get(task.label)
        if search is None:  # it waits for another run, which finds this candidate in the store
            return
        candidate = search.candidates[task.index]
        run = next(run for run in candidate.runs if run.trial == task.trial)
        search.tell(candidate, run, state, curve)
        store_search(self.store, search)
        self._queue(search)  # other seeds of those that go on
