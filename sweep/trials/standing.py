"""Status of the studies in a store, trial by trial, from the records and leases."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from sweep import commands, listing
from sweep.errors import UserError
from sweep.store import layout
from sweep.store.base import Skip, Store, TrialLook
from sweep.store.encoding import BrokenRecord
from sweep.store.lease_upkeep import held
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.manifest import Manifest, PlannedCell, PlannedSearch
from sweep.store.records.trial import Progress, TrialRecord
from sweep.store.usage import budget_left, usages
from sweep.studies import nearest
from trainers.data import dataset_facts
from trainers.measures.chance import near_chance
from trainers.plugins import registry

SHOWN = 10
WORDS = 8  # notes on seeds per method
EXPLAINED = 100  # failed trials per study whose record is read for the reason
ORDER = ("done", "running", "failed", "collapsed", "broken", "left")


class TrialStanding(NamedTuple):
    label: str
    seed: int
    trial: str | None
    state: str
    evaluations: int
    wanted: int
    progress: Progress | None = None
    reason: str | None = None
    near_chance: bool = False

    def facts(self) -> dict[str, Any]:
        facts = {"label": self.label, "seed": self.seed, "trial": self.trial, "state": self.state}
        if self.state == "running":
            facts["progress"] = self.progress and self.progress.model_dump()
        facts["evaluations"] = self.evaluations
        if self.near_chance:
            facts["near_chance"] = True
        if self.state in ("failed", "collapsed"):
            facts["reason"] = self.reason
        return facts

    def word(self) -> str:
        """Return a note on the seed if it is running, near chance, failed, collapsed or broken; otherwise ''."""
        if self.state == "running":
            return f"{self.seed} {_how_far(self.progress)}"
        if self.near_chance:
            return f"{self.seed} near chance"
        return f"{self.seed} {self.state}" if self.state in ("failed", "collapsed", "broken") else ""


@dataclass(frozen=True)
class SearchStanding:
    label: str
    id: str
    state: str
    finished: int = 0
    wanted: int | None = None
    chosen: dict[str, Any] | None = None

    def text(self) -> str:
        wanted = f", {self.finished}/{self.wanted} candidates" if self.wanted else ""
        chose = f", chose {listing.settings(self.chosen)}" if self.chosen else ""
        return f"search {self.label}: {self.state}{wanted}{chose}"


@dataclass(frozen=True)
class StudyStanding:
    study: str
    title: str
    trials: list[TrialStanding]
    searches: list[SearchStanding]
    device_hours: float = 0.0  # used so far
    budget_left: float | None = None
    command: str = ""  # runs the remaining trials

    @property
    def distinct(self) -> list[TrialStanding]:
        """Return each trial once, even if several columns share it."""
        return list({trial.trial or (trial.label, trial.seed): trial for trial in self.trials}.values())

    @property
    def counts(self) -> Counter[str]:
        return Counter(trial.state for trial in self.distinct)

    @property
    def evaluations(self) -> dict[str, int]:
        distinct = self.distinct
        return {
            "stored": sum(trial.evaluations for trial in distinct),
            "wanted": sum(trial.wanted for trial in distinct if trial.state not in ("failed", "collapsed")),
        }

    def facts(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "title": self.title,
            "trials": [trial.facts() for trial in self.trials],
            "counts": self.counts,
            "evaluations": self.evaluations,
            "searches": [vars(search) for search in self.searches],
            "device_hours": self.device_hours,
            "budget_left": self.budget_left,
        }

    def text(self) -> str:
        by_label: dict[str, list[TrialStanding]] = defaultdict(list)
        for trial in self.trials:
            by_label[trial.label].append(trial)
        rows = []
        for label, trials in by_label.items():
            states = [trial.state for trial in trials]
            words = [word for trial in trials if (word := trial.word())]
            if len(words) > WORDS:
                words[WORDS:] = ["…"]
            rows.append((label, *[states.count(state) or "-" for state in ORDER], "; ".join(words)))
        counts = self.counts
        total = ", ".join(f"{counts[state]:,} {state}" for state in ORDER if counts[state])
        evaluations = "{stored:,}/{wanted:,}".format(**self.evaluations)
        lines = [
            f"{self.study}: {self.title}",
            listing.columns(("method", *ORDER, "seeds"), rows),
            f"{listing.count(counts.total(), 'trial')}: {total}; evaluations {evaluations}",
            *(search.text() for search in self.searches),
        ]
        if self.device_hours or self.budget_left is not None:
            left = "" if self.budget_left is None else f", {self.budget_left:.2f} left of the budget"
            lines.append(f"{self.device_hours:.2f} device-hours used{left}")
        lines += [
            f"{trial.label} seed {trial.seed} {trial.state}: {trial.reason} ({layout.trial_folder(trial.trial)})"
            for trial in self.trials
            if trial.reason and trial.trial
        ][:SHOWN]
        if counts["failed"]:
            lines.append(f"to run failed trials again: {self.command} --retry-failed")
        elif self.command and counts["left"] and not counts["running"]:
            lines.append(f"to go on: {self.command}")
        return "\n".join(lines)


def standings(
    store: Store, study: str | None, skip: Skip, looks: Mapping[str, TrialLook] | None = None
) -> list[StudyStanding]:
    """Return the status of one study, or of all studies in the store; unreadable records are passed to `skip`."""
    broken: list[BrokenRecord] = []
    manifests = store.manifests(broken.append)
    for fault in broken:
        if study is not None and fault.path == layout.manifest(study):
            raise fault
        skip(fault)
    if study is not None and study not in manifests:
        if not manifests:
            start = commands.run(study, None, store.uri)
            raise UserError(f"store {store.uri} holds no study yet; start one with: {start}")
        known = ", ".join(sorted(manifests))
        raise UserError(f"store {store.uri} has no study {study!r}{nearest(study, manifests)} known: {known}")
    now = _Moment(store, store.trial_looks() if looks is None else looks)
    wanted = manifests.values() if study is None else [manifests[study]]
    return [now.study(manifest, skip) for manifest in wanted]


class _Moment:
    """Snapshot of the store's trials, leases and evaluations."""

    def __init__(self, store: Store, looks: Mapping[str, TrialLook]) -> None:
        self.store, self.looks, self.leases = store, looks, held(store)
        self.evaluated = set(store.record_paths(EvaluationRecord))
        self.evaluated_trials = set(map(layout.evaluated_trial, self.evaluated))

    def study(self, manifest: Manifest, skip: Skip) -> StudyStanding:
        states = {cell.trial: self._state(cell.trial) for cell in manifest.cells if cell.trial}
        failed = [trial for trial, state in states.items() if state in ("failed", "collapsed")][:EXPLAINED]
        records = self.store.records(TrialRecord, map(layout.trial_record, failed), skip)
        reasons = {record.trial: record.reason for record in records}
        classes = dataset_facts(manifest.dataset).classes if manifest.dataset in registry.DATASETS else None
        progress = self._progress(trial for trial, state in states.items() if state == "running")
        wanted = {
            label: len(manifest.checkpoints(label)) * len(manifest.attacks)
            for label in {cell.label for cell in manifest.cells}
        }
        trials = [
            TrialStanding(
                label=cell.label,
                seed=cell.seed,
                trial=cell.trial,
                state=states.get(cell.trial or "", "left"),
                evaluations=self._evaluations(manifest, cell),
                wanted=wanted[cell.label],
                progress=progress.get(cell.trial or ""),
                reason=reasons.get(cell.trial or ""),
                near_chance=self._near_chance(cell.trial, classes),
            )
            for cell in manifest.cells
        ]
        searches = [self._search(search, skip) for search in manifest.searches]
        used, left = budget_left(usages(self.store, manifest.name, skip))
        again = commands.run(manifest.name, manifest.command, self.store.uri)
        return StudyStanding(manifest.name, manifest.title, trials, searches, used, left, again)

    def _state(self, trial: str) -> str:
        look = self.looks.get(layout.short(trial))
        if look is not None:
            return look.state
        return "running" if layout.trial_lease(trial) in self.leases else "left"

    def _evaluations(self, manifest: Manifest, cell: PlannedCell) -> int:
        if layout.short(cell.trial or "") not in self.evaluated_trials:  # the usual case early in a study
            return 0
        return sum(path in self.evaluated for path in manifest.evaluation_paths(cell))

    def _near_chance(self, trial: str | None, classes: int | None) -> bool:
        look = self.looks.get(layout.short(trial or ""))
        clean = None if look is None else look.clean_accuracy
        return classes is not None and clean is not None and near_chance(clean, classes)

    def _progress(self, trials: Iterable[str]) -> dict[str, Progress]:
        """Return the progress of running trials by trial, as last written by their workers."""
        found = {}
        for _, data in self.store.read_many(layout.trial_file(trial, layout.PROGRESS) for trial in trials):
            with contextlib.suppress(ValidationError):
                note = Progress.model_validate_json(data)
                found[note.trial] = note
        return found

    def _search(self, search: PlannedSearch, skip: Skip) -> SearchStanding:
        running = "running" if layout.search_lease(search.id) in self.leases else "left"
        try:
            record = self.store.search_record(search.id)
        except BrokenRecord as fault:
            skip(fault)
            return SearchStanding(search.label, search.id, "broken")
        if record is None:
            return SearchStanding(search.label, search.id, running)
        return SearchStanding(
            search.label,
            search.id,
            running if record.status == "running" else record.status,  # a stopped driver leaves it at running
            finished=sum(candidate.state != "open" for candidate in record.candidates),
            wanted=record.wanted,
            chosen=record.chosen if record.status == "done" else None,
        )


def _how_far(progress: Progress | None) -> str:
    if progress is None:
        return "starts"
    seconds = max(0, int(time.time() - progress.updated))
    ago = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
    return f"epoch {progress.epoch}/{progress.epochs} on {progress.host} {ago} ago"
