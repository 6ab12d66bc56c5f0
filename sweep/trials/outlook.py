"""Preview of a run: the stored state of a study's trials and the work to do, as text or JSON.

Does not import torch.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from sweep import listing
from sweep.store import layout
from sweep.store.base import Store, fault_of
from sweep.store.older import older_note
from sweep.store.records.evaluation import EvaluationRecord
from sweep.studies.model import Study, searched
from sweep.trials import cells as planned
from sweep.trials.candidates import most_candidates
from sweep.trials.identity import search_id

DOES = {"broken": "train again", "missing": "train", "waiting": "search"}


class TrialOutlook(NamedTuple):
    label: str
    method: str
    seed: int
    epochs: int
    steps: int | None
    hyperparameters: dict[str, Any]
    trial: str | None
    state: str
    would: str
    evaluations_stored: int
    evaluations: int


@dataclass(frozen=True)
class SearchOutlook:
    label: str
    id: str
    candidates: int
    seeds: tuple[int, ...]
    state: str


def seeds_text(seeds: tuple[int, ...]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


@dataclass(frozen=True)
class Outlook:
    study: str
    title: str
    store: str
    trials: list[TrialOutlook]
    searches: list[SearchOutlook]
    attacks: list[str]
    counts: dict[str, int]
    to_run: int
    evaluations: int
    evaluations_stored: int
    older: str | None  # note on records of earlier numerics versions

    def json(self, **more: Any) -> str:
        trials = [trial._asdict() for trial in self.trials]
        return json.dumps({**vars(self), "trials": trials, **more}, indent=1, default=vars)

    def text(self, study: Study) -> str:
        one_of_each = {trial.label: trial for trial in self.trials}  # all seeds of a label share their hyperparameters
        settings = {
            label: "chosen by the search" if trial.trial is None else listing.settings(trial.hyperparameters)
            for label, trial in one_of_each.items()
        }
        rows = [
            (
                trial.label,
                trial.seed,
                f"{trial.steps} steps" if trial.steps else trial.epochs,
                layout.short(trial.trial) if trial.trial else "after the search",
                trial.state,
                f"{trial.evaluations_stored}/{trial.evaluations}",
                trial.would,
                settings[trial.label],
            )
            for trial in self.trials
        ]
        headers = ("method", "seed", "epochs", "trial", "stored", "evaluated", "would", "hyperparameters")
        counts = ", ".join(f"{number:,} {state}" for state, number in self.counts.items())
        lines = [
            f"{self.study}: {self.title} ({study.dataset}, {study.model}); store {self.store}",
            listing.columns(headers, rows),
            f"{listing.count(sum(self.counts.values()), 'trial')}: {counts}; {self.to_run:,} to run",
            f"{listing.count(self.evaluations, 'evaluation')}, {self.evaluations_stored:,} stored",
            _passes(study),
        ]
        lines += [
            f"search {search.label}: up to {search.candidates} candidates, {seeds_text(search.seeds)}"
            for search in self.searches
            if search.state == "missing"
        ]
        if self.counts.get("failed"):
            lines.append("failed trials stay as they are; --retry-failed runs them again")
        if self.older:
            lines.append(self.older)
        return "\n".join(lines)


def _passes(study: Study) -> str:
    """Describe the estimated cost of evaluating one checkpoint."""
    attacks = planned.evaluation_attacks(study)
    total, dearest = sum(attack.cost for attack in attacks), max(attacks, key=lambda attack: attack.cost)
    text = f"evaluating one checkpoint takes about {total:,.0f} forward-backward passes per image"
    return f"{text}, {dearest.cost:,.0f} of them for {dearest.name}"


def outlook(study: Study, store: Store, cells: list[planned.Cell], *, retry_failed: bool = False) -> Outlook:
    attacks = [attack.id for attack in planned.evaluation_attacks(study)]
    checkpoints = {label: planned.evaluated_checkpoints(study, config) for label, config in planned.configs(cells)}
    present = set(store.record_paths(EvaluationRecord))
    evaluated_trials = set(map(layout.evaluated_trial, present))
    # Paths are computed only for trials that have stored evaluations.
    places = [
        [
            layout.evaluation_record(cell.trial, checkpoint, attack)
            for checkpoint in checkpoints[cell.label]
            for attack in attacks
        ]
        if cell.trial and layout.short(cell.trial) in evaluated_trials
        else []
        for cell in cells
    ]
    asked = [path for paths in places for path in paths if path in present]
    stored = {path for path, data in store.read_many(asked) if fault_of(path, data) is None}
    looks = store.trial_looks()
    states = planned.states(cells, store, looks)
    trials = []
    for cell, state, paths in zip(cells, states, places, strict=True):
        again = state == "failed" and retry_failed
        wanted = len(checkpoints[cell.label]) * len(attacks)
        evaluated = len(stored.intersection(paths))
        trials.append(
            TrialOutlook(
                label=cell.label,
                method=cell.method,
                seed=cell.seed,
                epochs=cell.column.recipe.epochs,
                steps=cell.column.recipe.steps,
                hyperparameters=cell.hyperparameters,
                trial=cell.trial,
                state=state,
                would="train again" if again else DOES.get(state, "-"),
                evaluations_stored=evaluated,
                evaluations=wanted if state not in ("failed", "collapsed") or again else evaluated,
            )
        )
    # Count each trial once. Two columns share trials if a search chose the study's own values.
    once = list({trial.trial or (trial.label, trial.seed): trial for trial in trials}.values())
    waiting = {trial.label for trial in trials if trial.state == "waiting"}
    return Outlook(
        study=study.name,
        title=study.title,
        store=store.uri,
        trials=trials,
        searches=[
            SearchOutlook(
                label,
                search_id(study, label),
                most_candidates(study, label),
                search.seeds,
                "missing" if searched(label) in waiting else "done",
            )
            for label, search in study.searches().items()
        ],
        attacks=attacks,
        counts=dict(Counter(trial.state for trial in once)),
        to_run=sum(trial.would != "-" for trial in once),
        evaluations=sum(trial.evaluations for trial in once),
        evaluations_stored=sum(trial.evaluations_stored for trial in once),
        older=older_note(store, looks.values()),
    )
