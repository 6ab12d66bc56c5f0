"""A hyperparameter search whose outcome depends on the stored records alone, not on timing or interruptions.

Candidates come in generations from Ray's OptunaSearch. A generation is proposed only when the one before it is
complete, by a sampler seeded with (search seed, generation), and its pruning cut-offs come from completed
generations only. Parallel TPE and ASHA as usually run let the first arrival decide; here any order of completion,
and any number of kills in between, gives the same candidates, the same prunings and the same choice.

A candidate's value is its mean over the search's seeds. All are trained on the first seed; the others see only those
that belong to the best third of all candidates so far once the first seeds of their generation have ended, and the
study's own values, with which the choice is compared.
"""

from __future__ import annotations

import logging
import math
import os
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial
from ray.tune.search.optuna import OptunaSearch

from sweep.errors import UserError
from sweep.search.pruning import best_so_far, cut_offs, judged, third
from sweep.search.sampling import Distinct, grid_points, size, widened
from sweep.store.encoding import canonical
from sweep.store.records import CandidateEntry, SearchRecord
from sweep.trials.provenance import versions

GENERATION = 4
METRICS = {
    "margin": "validation_margin_accuracy",
    "pgd": "validation_pgd_accuracy",
    "clean": "validation_clean_accuracy",
}

logging.getLogger("ray.tune.search.optuna.optuna_search").setLevel(logging.ERROR)
optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class SearchSettings:
    """What is searched; `id` names it by all that can move its outcome, so equal searches are one."""

    id: str
    label: str
    method: str
    space: Mapping[str, BaseDistribution]
    paper_value: dict[str, Any]
    own_value: dict[str, Any] | None = None  # the study's, where it is not the paper's
    rungs: tuple[int, ...] = ()
    sampler: str = "tpe"
    candidates: int = 8
    seeds: tuple[int, ...] = (1000,)
    pruner: str = "asha"
    objectives: tuple[str, ...] = ("margin",)

    @property
    def first(self) -> list[dict[str, Any]]:
        """The study's own values, which the choice must beat, then the paper's where they are others."""
        points = [canonical(self.own_value or self.paper_value), canonical(self.paper_value)]
        return points[:1] if points[0] == points[1] else points

    @property
    def metric(self) -> str:
        """The accuracy that prunes and, alone or with others, chooses."""
        return METRICS[self.objectives[0]]


@dataclass
class SeedRun:
    """One training of a candidate."""

    seed: int
    trial: str
    state: str = "open"  # then done, pruned, collapsed or failed
    values: list[float] | None = None  # one per objective
    epochs: int = 0


@dataclass
class Candidate:
    index: int
    generation: int
    hyperparameters: dict[str, Any]
    trial: str
    state: str = "open"  # then done, pruned, collapsed or failed
    value: float | None = None
    values: list[float] | None = None  # one per objective, means over the seeds
    epochs: int = 0
    robust: list[float | None] = field(default_factory=list)  # the first objective with the first seed, per epoch
    clean: list[float | None] = field(default_factory=list)
    runs: list[SeedRun] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"candidate-{self.index}"

    @property
    def waits(self) -> bool:
        """Whether its first seed has not ended."""
        return self.state == "open" and self.runs[0].state == "open"


class Search:
    def __init__(
        self,
        settings: SearchSettings,
        hash_of: Callable[[dict[str, Any], int], str],
        journal: Path,
        record: SearchRecord | None = None,
    ) -> None:
        """`hash_of` names the trial of some hyperparameters and a seed; `record` is what an earlier session stored."""
        self.settings, self.journal, self._hash_of = settings, journal, hash_of
        if record and record.space != self._space_record():
            raise UserError(
                f"searches/{settings.id} was begun in another space; delete that folder of the store to begin anew"
            )
        self.candidates = [_from_record(entry, settings.seeds[0]) for entry in record.candidates] if record else []
        self._optuna: OptunaSearch | None = None
        self._asked = -1  # the generation whose trials Optuna holds open
        self._behind = False  # candidates of other generations were told, after a retry: the journal lacks them
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
        """Propose the next generation if the last is complete; True if there is a new one (record it before use)."""
        if self._optuna is None and self.open():
            self._ask(self.open()[-1].generation)
        if self.open():
            return False
        if self._behind:
            self._rebuild_journal(len(self.candidates))
            self._optuna, self._behind = None, False
        if len(self.candidates) >= self.wanted:
            return False
        self._ask(self.candidates[-1].generation + 1 if self.candidates else 0)
        return True

    def trainings(self) -> list[tuple[Candidate, SeedRun]]:
        """What is to be trained now: first seeds, then the other seeds of those that go on."""
        return [
            (candidate, run)
            for candidate in self.open()
            for run in (candidate.runs[:1] if candidate.waits else candidate.runs[1:])
            if run.state == "open" and (candidate.waits or self._first_seeds_ended(candidate.generation))
        ]

    def cut_offs(self, candidate: Candidate) -> dict[int, float]:
        """Of its first seed; the other seeds are trained to the end."""
        if self.settings.pruner == "none":
            return {}
        earlier = [other.robust for other in self.candidates if other.generation < candidate.generation]
        return cut_offs(earlier, self.settings.rungs)

    def tell(self, candidate: Candidate, run: SeedRun, state: str, curve: Sequence[Mapping[str, Any]]) -> None:
        """A training ended: `state` is done, collapsed or failed; whether it was pruned follows."""
        first = run is candidate.runs[0]
        goals = [[row.get(METRICS[goal]) for row in curve] for goal in self.settings.objectives]
        length, pruned = judged(goals[0], self.cut_offs(candidate)) if first else (len(curve), False)
        run.state, run.epochs = "pruned" if pruned else state, length
        run.values = None if run.state == "failed" else _reached([goal[:length] for goal in goals], run.state)
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
        """Once all first seeds of a generation have ended, whoever is not among the best third so far goes no further.

        A whole grid, and a search without pruner, train everything on every seed.
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
        """Its value is the mean over the seeds that it was trained on; a collapsed one is no choice, nor a failed."""
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
        if self._optuna is not None and candidate.generation == self._asked:
            self._report(self._optuna, candidate)
        else:
            self._behind = True

    def front(self) -> list[Candidate]:
        """Complete candidates that no other beats in all objectives."""
        whole = [candidate for candidate in self.candidates if candidate.state == "done" and candidate.values]
        return [one for one in whole if not any(_dominates(other, one) for other in whole)]

    def chosen(self) -> tuple[Candidate | None, str]:
        """The winner and why; ties go to the study's own values, then to the earlier candidate."""
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

    def _ask(self, generation: int) -> None:
        """Make Optuna's trials of a generation: those proposed before come back as they were, others are new."""
        known = [candidate for candidate in self.candidates if candidate.generation == generation]
        first = known[0].index if known else len(self.candidates)
        count = self._generation_size(first)
        if known:
            points = [candidate.hyperparameters for candidate in known]
        elif self._points:
            points = self._ordered_grid()[first : first + count]
        else:
            points = self.settings.first[:count] if generation == 0 else []
        if self._optuna is None:
            self._rebuild_journal(generation)
        self._optuna, self._asked = self._searcher(generation, points), generation
        for index in range(first, first + count):
            with warnings.catch_warnings():
                # The study's values, and the paper's, may lie outside of the grid that the paper states.
                warnings.filterwarnings("ignore", message="Fixed parameter")
                proposed = canonical(self._optuna.suggest(f"candidate-{index}"))
            if not known:
                runs = [SeedRun(seed, self._hash_of(proposed, seed)) for seed in self.settings.seeds]
                self.candidates.append(Candidate(index, generation, proposed, runs[0].trial, runs=runs))
        for candidate in known:
            if candidate.state != "open":
                self._report(self._optuna, candidate)

    def _searcher(self, generation: int, points: list[dict[str, Any]]) -> OptunaSearch:
        several = len(self.settings.objectives) > 1
        metrics: Any = [METRICS[goal] for goal in self.settings.objectives]
        return OptunaSearch(
            space=dict(self.settings.space),
            metric=metrics if several else metrics[0],
            mode=["max"] * len(metrics) if several else "max",
            points_to_evaluate=points,
            sampler=Distinct(self.settings.space, self.settings.seeds[0], generation, startup=GENERATION),
            storage=_storage(self.journal),
            study_name=self.settings.id,
        )

    def _rebuild_journal(self, generation: int) -> None:
        """The journal of an earlier session may hold trials that a kill left running: written anew from the record."""
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.journal.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        free_journal(self.journal)
        study = optuna.create_study(
            storage=_storage(fresh),
            study_name=self.settings.id,
            directions=["maximize"] * len(self.settings.objectives),
        )
        for candidate in self.candidates:
            if candidate.generation < generation:
                study.add_trial(self._frozen(candidate))
        os.replace(fresh, self.journal)

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
            intermediate_values=None if several else _steps(candidate),
        )

    def _report(self, searcher: OptunaSearch, candidate: Candidate) -> None:
        if len(self.settings.objectives) == 1:
            for step, value in _steps(candidate).items():
                searcher.on_trial_result(candidate.id, {self.settings.metric: value, "training_iteration": step})
        result = dict(zip((METRICS[goal] for goal in self.settings.objectives), candidate.values or (), strict=False))
        searcher.on_trial_complete(candidate.id, result or None, error=candidate.values is None)

    def _generation_size(self, first: int) -> int:
        most = self.wanted if self._points else GENERATION
        return min(most, self.wanted - first)

    def _ordered_grid(self) -> list[dict[str, Any]]:
        first = self.settings.first
        return [*first, *(point for point in self._points if point not in first)]


def free_journal(journal: Path) -> None:
    """Whoever leads the search writes its journal alone: a lock that is there was left by a killed process, and Optuna
    would wait 30 s for it."""
    for lock in journal.parent.glob(f"{journal.stem}.*.lock*"):
        lock.unlink(missing_ok=True)


def _storage(path: Path) -> optuna.storages.JournalStorage:
    return optuna.storages.JournalStorage(JournalFileBackend(str(path)))


def _steps(candidate: Candidate) -> dict[int, float]:
    return {
        step + 1: value for step, value in enumerate(candidate.robust) if value is not None and math.isfinite(value)
    }


def _dominates(one: Candidate, other: Candidate) -> bool:
    pairs = list(zip(one.values or (), other.values or (), strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _reached(goals: Sequence[Sequence[float | None]], state: str) -> list[float]:
    """The best of the first objective, and the others in that epoch; all 0 for a collapse, however good before."""
    best = best_so_far(goals[0])
    if best is None or state == "collapsed":
        return [0.0] * len(goals)
    epoch = list(goals[0]).index(best)
    return [goal[epoch] or 0.0 for goal in goals]


def _from_record(entry: CandidateEntry, seed: int) -> Candidate:
    values = entry.model_dump(mode="python")
    for name in ("robust", "clean"):
        values[name] = list(values[name])
    values["values"] = None if entry.values is None else list(entry.values)
    values["runs"] = [
        SeedRun(**{**run.model_dump(), "values": None if run.values is None else list(run.values)})
        for run in entry.runs
    ] or [SeedRun(seed, entry.trial, entry.state, values["values"], entry.epochs)]
    return Candidate(**values)
