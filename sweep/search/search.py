"""A hyperparameter search whose outcome depends on the stored records alone, not on timing or interruptions.

Ray's OptunaSearch proposes candidates in generations. A generation is proposed only after the previous one is
complete, by a sampler seeded with (search seed, generation). Its pruning cut-offs come from completed generations
only. In the usual parallel TPE and ASHA, the order of completion influences the outcome. Here, any order of completion
and any number of interruptions give the same candidates, the same prunings and the same choice.

A candidate's value is its mean over the search's seeds. All candidates are trained on the first seed. Once the first
seeds of a generation have ended, the other seeds are trained only for the best third of all candidates so far, and for
the study's own values, with which the choice is compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from optuna.distributions import distribution_to_json

from sweep.errors import UserError
from sweep.search.candidates import Candidate, SeedRun, dominates, from_record, reached
from sweep.search.compat import values_outside_allowed
from sweep.search.journal import Journal, searcher
from sweep.search.pruning import cut_offs, judged, third
from sweep.search.settings import GENERATION, METRICS, SearchSettings
from sweep.store.encoding import canonical
from sweep.store.records.search import CandidateEntry, SearchRecord
from sweep.studies.grid import grid_points, size
from sweep.trials.provenance import versions


class Search:
    def __init__(
        self,
        settings: SearchSettings,
        hash_of: Callable[[dict[str, Any], int], str],
        journal: Path,
        record: SearchRecord | None = None,
    ) -> None:
        """Start a search, or resume it from `record`. `hash_of` maps hyperparameters and a seed to a trial."""
        self.settings, self.journal, self._hash_of = settings, Journal(settings, journal), hash_of
        if record and record.space != self._space_record():
            raise UserError(
                f"searches/{settings.id} was begun in another space; delete that folder of the store to begin anew"
            )
        self.candidates = [from_record(entry, settings.seeds[0]) for entry in record.candidates] if record else []
        self._points = grid_points(settings.space) if settings.sampler == "grid" else []

    @property
    def wanted(self) -> int:
        if self.settings.sampler == "grid":
            return len(self._ordered_grid())
        return int(min(self.settings.candidates, size(self.settings.space, self.settings.first)))

    @property
    def finished(self) -> bool:
        return len(self.candidates) >= self.wanted and not self.open()

    def open(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.state == "open"]

    def advance(self) -> bool:
        """Propose the next generation if the last is complete. Return True if there is one, and store it before use."""
        if self.open() or len(self.candidates) >= self.wanted:
            if not self.journal.is_begun or (self.finished and not self.journal.is_written):
                self.journal.write(self.candidates)
            return False
        self._propose(self.candidates[-1].generation + 1 if self.candidates else 0)
        self.journal.write(self.candidates)
        return True

    def trainings(self) -> list[tuple[Candidate, SeedRun]]:
        """Return the trainings to run now: first seeds, then the other seeds of candidates that continue."""
        return [
            (candidate, run)
            for candidate in self.open()
            for run in (candidate.runs[:1] if candidate.waits else candidate.runs[1:])
            if run.state == "open" and (candidate.waits or self._first_seeds_ended(candidate.generation))
        ]

    def cut_offs(self, candidate: Candidate) -> dict[int, float]:
        """Return the cut-offs for a candidate's first seed, by rung. Other seeds are trained to the end."""
        if self.settings.pruner == "none":
            return {}
        earlier = [other.robust for other in self.candidates if other.generation < candidate.generation]
        return cut_offs(earlier, self.settings.rungs)

    def tell(self, candidate: Candidate, run: SeedRun, state: str, curve: Sequence[Mapping[str, Any]]) -> None:
        """Record a training that ended done, collapsed or failed (`state`). Whether it was pruned is computed here."""
        first = run is candidate.runs[0]
        goals = [[row.get(METRICS[goal]) for row in curve] for goal in self.settings.objectives]
        length, pruned = judged(goals[0], self.cut_offs(candidate)) if first else (len(curve), False)
        run.state, run.epochs = "pruned" if pruned else state, length
        run.values = None if run.state == "failed" else reached([goal[:length] for goal in goals], run.state)
        if first:
            candidate.robust = goals[0][:length]
            candidate.clean = [row.get(METRICS["clean"]) for row in curve[:length]]
        if first and run.state != "done":
            self._close(candidate, run.state)
        elif all(other.state != "open" for other in candidate.runs):
            worst = [word for word in ("failed", "collapsed") for other in candidate.runs if other.state == word]
            self._close(candidate, worst[0] if worst else "done")
        self._promote(candidate.generation)

    def _first_seeds_ended(self, generation: int) -> bool:
        return not any(one.waits for one in self.candidates if one.generation == generation)

    def _promote(self, generation: int) -> None:
        """Prune candidates outside the best third so far, once all first seeds of a generation have ended.

        A grid search, and a search without pruner, trains every candidate on every seed.
        """
        if self.settings.pruner == "none" or self._points or not self._first_seeds_ended(generation):
            return
        ended = [one for one in self.candidates if one.generation <= generation]
        reached = sorted((one.runs[0].values[0] for one in ended if one.runs[0].values), reverse=True)
        for candidate in ended:
            values = candidate.runs[0].values
            begun = any(run.state != "open" for run in candidate.runs[1:])
            if candidate.state == "open" and candidate.index and not begun and values and values[0] < third(reached):
                self._close(candidate, "pruned")

    def _close(self, candidate: Candidate, state: str) -> None:
        """Set a candidate's final state and its values: means over trained seeds, 0 if collapsed, None if failed."""
        candidate.state = state
        candidate.epochs = sum(run.epochs for run in candidate.runs)
        known = [run.values for run in candidate.runs if run.values is not None]
        if state == "failed":
            candidate.value, candidate.values = None, None
        else:
            candidate.values = [
                0.0 if state == "collapsed" else statistics.fmean(goal) for goal in zip(*known, strict=True)
            ]
            candidate.value = candidate.values[0]
        self.journal.report(candidate)

    def front(self) -> list[Candidate]:
        """Return the Pareto front: complete candidates that no other dominates."""
        whole = [candidate for candidate in self.candidates if candidate.state == "done" and candidate.values]
        return [one for one in whole if not any(dominates(other, one) for other in whole)]

    def chosen(self) -> tuple[Candidate | None, str]:
        """Return the winner and the reason. Ties go to the study's own values, then to the earlier candidate."""
        if not self.finished:
            return None, f"{len(self.candidates) - len(self.open())} of {self.wanted} candidates are complete"
        front = self.front()
        if not front:
            return None, "no candidate was trained to the end"
        winner = max(front, key=lambda one: (sum(one.values or ()), one.index == 0, -one.index))
        pruned = sum(candidate.state == "pruned" for candidate in self.candidates)
        goals = " + ".join(METRICS[goal] for goal in self.settings.objectives)
        reason = f"highest {goals} ({sum(winner.values or ()):.4f}) of {len(self.candidates)} candidates"
        if len(self.settings.objectives) > 1:
            reason += f", on a Pareto front of {len(front)}"
        reason += f", {pruned} of them pruned" if pruned else ""
        if len(self.settings.seeds) > 1:
            reason += f", mean over {len(self.settings.seeds)} seeds"
        if winner.index != 0 and self.candidates[0].values:
            reason += f"; the study's own values reached {sum(self.candidates[0].values):.4f}"
        return winner, reason

    def record(self) -> SearchRecord:
        settings = self.settings
        winner, reason = self.chosen()
        return SearchRecord(
            id=settings.id,
            label=settings.label,
            method=settings.method,
            space=self._space_record(),
            objective=settings.metric,
            objectives=settings.objectives,
            sampler=settings.sampler,
            pruner=settings.pruner,
            seed=settings.seeds[0],
            seeds=settings.seeds,
            rungs=settings.rungs,
            generation=GENERATION,
            wanted=self.wanted,
            candidates=tuple(CandidateEntry.model_validate(asdict(one)) for one in self.candidates),
            front=tuple(one.index for one in self.front()) if self.finished else (),
            chosen=winner.hyperparameters if winner else None,
            reason=reason,
            status="running" if not self.finished else "done" if winner else "failed",
            paper_value=settings.paper_value,
            own_value=settings.first[0],
            versions=versions(),
        )

    def _space_record(self) -> dict[str, str]:
        return {name: distribution_to_json(item) for name, item in self.settings.space.items()}

    def _propose(self, generation: int) -> None:
        """Add the candidates of a new generation."""
        first = len(self.candidates)
        count = self._generation_size(first)
        if self._points:
            points = self._ordered_grid()[first : first + count]
        else:
            points = self.settings.first[:count] if generation == 0 else []
        optuna = searcher(self.settings, generation, points, self.candidates)
        for index in range(first, first + count):
            with values_outside_allowed():
                proposed = canonical(optuna.suggest(f"candidate-{index}"))
            runs = [SeedRun(seed, self._hash_of(proposed, seed)) for seed in self.settings.seeds]
            self.candidates.append(Candidate(index, generation, proposed, runs[0].trial, runs=runs))

    def _generation_size(self, first: int) -> int:
        most = self.wanted if self._points else GENERATION
        return min(most, self.wanted - first)

    def _ordered_grid(self) -> list[dict[str, Any]]:
        first = self.settings.first
        return [*first, *(point for point in self._points if point not in first)]
