"""The open searches of a sweep, between candidates and pieces of work."""

from __future__ import annotations

from typing import Any

from sweep.search.search import Search
from sweep.search.stored import Ended, OpenSearches, store_search
from sweep.store.base import Store
from sweep.store.records.search import CandidateRecord
from sweep.store.records.trial import TrialRecord
from sweep.studies.model import Study
from sweep.trials.candidates import most_candidates
from sweep.trials.cost import PRUNED_SHARE, training_cost
from sweep.work.pieces import Candidate
from sweep.work.training import forget


class Searches:
    """The open searches of a study. `settled` are the values chosen by finished searches, by label."""

    def __init__(
        self, study: Study, store: Store, settled: dict[str, dict[str, Any]], *, retry_failed: bool = False
    ) -> None:
        self.study, self.store = study, store
        self._searches = OpenSearches(study, store, settled, retry_failed)

    def __len__(self) -> int:
        return len(self._searches.open)

    def advance(self) -> tuple[list[Candidate], list[Ended]]:
        """Return the candidates that the searches propose now, and the searches that ended."""
        grown, ended = self._searches.advance()
        return [piece for search in grown for piece in self._pieces(search)], ended

    def tell(self, piece: Candidate) -> list[Candidate]:
        """Tell a search that a candidate has ended, as its record says. Return the trainings that follow from it."""
        search = self._searches.open.get(piece.label)
        if search is None:  # the search waits for another run, which will find this candidate in the store
            return []
        record: TrialRecord | CandidateRecord | None = self.store.trial_record(piece.trial)
        if record is None:
            record = self.store.candidate_record(piece.search, piece.trial)
            forget(self.store, piece.trial)  # its worker may have been killed before it could
        state, curve = ("failed", ()) if record is None else (record.status, record.curve)
        candidate = search.candidates[piece.index]
        run = next(run for run in candidate.runs if run.trial == piece.trial)
        search.tell(candidate, run, state, curve)
        store_search(self.store, search)
        return self._pieces(search)  # further seeds of the surviving candidates

    def leave(self, label: str) -> None:
        """Close a search with a candidate that no machine here can train.

        A choice must never depend on the machines, so the search waits for a run that can train it.
        """
        self._searches.leave(label)

    def expected_cost(self) -> float:
        """Return the cost of the trainings that the open searches have yet to propose."""
        cost = 0.0
        for label, search in self._searches.open.items():
            missing = search.wanted - len(search.candidates) if search else most_candidates(self.study, label)
            trainings = missing * len(self.study.search[label].seeds)
            cost += PRUNED_SHARE * trainings * training_cost(self.study.search_config(label, {}))
        return cost

    def close(self) -> None:
        self._searches.close()

    def _pieces(self, search: Search) -> list[Candidate]:
        settings = search.settings
        return [
            Candidate(
                settings.label,
                self.study.search_config(settings.label, candidate.hyperparameters, run.seed),
                run.trial,
                search=settings.id,
                index=candidate.index,
                cut_offs=search.cut_offs(candidate) if candidate.waits else {},
                metric=settings.metric,
            )
            for candidate, run in search.trainings()
        ]
