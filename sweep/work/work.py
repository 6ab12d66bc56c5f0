"""What a sweep still has to do, and in which order: candidates of searches, then trainings, then evaluations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sweep.cluster.worker import candidate_path
from sweep.evaluation import asked as evaluation_work
from sweep.evaluation.items import Evaluation, next_items
from sweep.search.search import Search
from sweep.search.stored import POLL_SECONDS, Searches, store_search
from sweep.store.base import BrokenRecord, Store
from sweep.studies.model import Study
from sweep.trials import cells as plan
from sweep.trials.cost import relative_cost
from sweep.trials.identity import folder
from sweep.work.pace import STAGES, Pace
from sweep.work.ready import Ready
from sweep.work.tasks import Claims, Job, failed_record, payload


class Work:
    """Everything that is left of a study. Another driver may be doing parts of it: those are waited for."""

    def __init__(
        self,
        study: Study,
        store: Store,
        *,
        common: Mapping[str, Any],
        retry_failed: bool = False,
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        self.study, self.store, self.common = study, store, dict(common)
        self.retry_failed, self.may_start = retry_failed, may_start
        self.ready = Ready()
        self.running: list[Job] = []
        self.failed: list[dict[str, Any]] = []
        self.done: Counter[str] = Counter()
        self.best: dict[str, float] = {}
        self.pace = Pace()
        self.claims = Claims(store)
        self.chosen = plan.chosen_values(study, store)
        self.searches = Searches(study, store, self.claims, self.chosen, retry_failed)
        self.cells: list[plan.Cell] = []
        self._open_items: Counter[str] = Counter()  # pieces of an evaluation's present phase that are not done yet
        self._broken: set[str] = set()  # evaluations of which a piece failed for good
        self._evaluated = 0.0  # cost of evaluations that are stored, done before or now
        self._look_at(list(study.labels))

    @property
    def complete(self) -> bool:
        return not (self.ready or self.running or self.searches.open)

    @property
    def left(self) -> int:
        return len(self.ready) + len(self.running) + len(self.searches.open)

    def seconds_left(self) -> float | None:
        """A guess at the wall time of all that is left, queued or not; None before anything is done."""
        left = {"train": self._expected_trainings(), "evaluate": self._expected_evaluations(), "diagnose": 0.0}
        for job in [*self.ready, *self.running]:
            if job.kind != "evaluate":  # all of these are expected: an evaluation queues one phase at a time
                left[STAGES[job.kind]] += job.cost * (1 - job.share)
        return self.pace.seconds_left(left, self.running)

    def next_job(self) -> Job | None:
        """The most urgent piece that nobody else has; None if there is nothing to start at the moment."""
        while True:
            self._advance_searches()
            job = self.ready.take(self._claim) if self.may_start() else None
            if job is None:
                return None
            if job.evaluation is not None and "phase" not in job.payload:
                self._open_phase(job)
            elif self._is_stored(job):  # another driver finished it in the meantime
                self.claims.release(job.claim)
                self._after(job)
            else:
                self.running.append(job)
                return job

    def _claim(self, job: Job) -> bool:
        if job.not_before > time.monotonic():
            return False
        if not self.claims.take(job.claim):
            job.not_before = time.monotonic() + POLL_SECONDS
            return False
        return True

    def finished(self, job: Job) -> None:
        """The worker ended well: what it made is in the store."""
        self.running.remove(job)
        if job.evaluation is None:
            self.claims.release(job.claim)
        self._after(job)

    def interrupted(self, job: Job) -> None:
        self.running.remove(job)
        self.ready.put_back(job)

    def gave_up(self, job: Job, reason: str, log: list[str]) -> None:
        """All retries failed: a record says why and how to run it again, and the rest goes on."""
        self.running.remove(job)
        facts = {"title": job.title, "trial": job.payload["trial"], "reason": reason, "log": log}
        self.failed.append({**facts, "command": job.payload["command"]})
        if job.evaluation is not None:
            self._broken.add(job.claim)
            self._close_item(job)
            return
        if job.kind != "diagnose":
            self.store.write_trial_record(failed_record(job, reason, log))
        self.claims.release(job.claim)
        if job.kind == "train":
            self.ready.training_ended(job.label)
        if job.search is not None and job.candidate is not None:
            job.search.tell(job.candidate, "failed", [])
            store_search(self.store, job.search)

    def close(self) -> None:
        self.claims.release_all()

    def _look_at(self, labels: list[str]) -> None:
        """Write down what the study consists of now, and queue what is missing of these labels."""
        self.cells = plan.expand(self.study, self.chosen)
        known = next((cell for cell in self.cells if cell.trial is not None), None)
        evaluations = evaluation_work.evaluations_of(self.study, known) if known else []
        self._evaluation_cost = sum(evaluation_work.relative_cost(one) for one in evaluations)  # of each trial
        self.store.write_manifest(plan.manifest(self.study, self.cells))
        # Two listings instead of a question about every file: a remote store answers one in some ten milliseconds.
        stored = {*self.store.evaluation_paths(), *self.store.list("diagnostics")}
        for cell, state in zip(self.cells, plan.states(self.cells, self.store), strict=True):
            if cell.label not in labels or cell.trial is None:
                continue
            if state == "failed" and not self.retry_failed:
                self.failed.append({"title": f"{cell.label} seed {cell.seed}", "trial": cell.trial, "stored": True})
            elif state == "done":
                self._queue_evaluations(cell, stored)
            elif state != "collapsed":
                name = f"trials-{folder(cell.trial)}"
                facts = self._payload("train", cell.label, cell.trial, cell.config)
                self.ready.add(Job("train", name, name, cell.label, cell.seed, relative_cost(cell.config), facts))

    def _after(self, job: Job) -> None:
        self.done[job.kind] += 1
        self.pace.end(job)
        self._evaluated += job.cost if job.kind == "evaluate" else 0.0
        if job.kind == "candidate":
            self._tell(job)
        elif job.kind == "evaluate":
            self._close_item(job)
        elif job.kind == "train":
            self.ready.training_ended(job.label)
            record = self.store.trial_record(job.payload["trial"])
            if record and record["status"] == "done":
                self._note_best(job.label, record["metrics"])
                self._queue_evaluations(next(cell for cell in self.cells if cell.trial == job.payload["trial"]))

    def _is_stored(self, job: Job) -> bool:
        if job.kind == "diagnose":
            return self.store.exists(job.payload["result"])
        if job.kind == "evaluate":
            return False
        try:
            record = self.store.trial_record(job.payload["trial"])
        except BrokenRecord:
            return False  # computed again, and its record replaced
        if record is not None:
            return record["status"] in ("done", "collapsed") or not self.retry_failed
        return job.kind == "candidate" and self.store.exists(
            candidate_path(job.payload["search"], job.payload["trial"])
        )

    def _payload(self, kind: str, label: str, trial: str, config: Any, **more: Any) -> dict[str, Any]:
        command = f"{self.common['command']} --methods {label} --seeds {config.seed} --retry-failed"
        if kind == "candidate":  # a candidate is run by its search, not by a seed of the tables
            command = f"{self.common['command']} --methods {label} --retry-failed"
        return payload(self.common, kind, label, trial, config, command=command, **more)

    # Searches

    def _advance_searches(self) -> None:
        grown, ended = self.searches.advance()
        for search in grown:
            self._queue_candidates(search)
        for label, chosen, reason in ended:
            if chosen is None:
                self.failed.append({"title": f"search of {label}", "reason": reason})
            else:
                self.chosen[label] = chosen
                self._look_at([label])

    def _queue_candidates(self, search: Search) -> None:
        label = search.settings.label
        for candidate in search.open():
            config = self.study.search_config(label, candidate.hyperparameters)
            name = f"trials-{folder(candidate.trial)}"
            more = {"search": search.settings.id, "cut_offs": search.cut_offs(candidate)}
            facts = self._payload("candidate", label, candidate.trial, config, **more)
            job = Job("candidate", name, name, label, config.seed, relative_cost(config), facts, search, candidate)
            self.ready.add(job)

    def _tell(self, job: Job) -> None:
        assert job.search is not None and job.candidate is not None
        record = self.store.trial_record(job.candidate.trial)
        if record is None:
            record = self.store.read_json(candidate_path(job.payload["search"], job.candidate.trial))
        job.search.tell(job.candidate, record["status"], record["curve"])
        store_search(self.store, job.search)

    # Evaluations: one entry per evaluation, opened phase by phase into pieces that run side by side

    def _queue_evaluations(self, cell: plan.Cell, stored: Collection[str] | None = None) -> None:
        """`stored` are the records that are there; without it the store is asked about each."""

        def is_there(path: str) -> bool:
            return self.store.exists(path) if stored is None else path in stored

        for evaluation in evaluation_work.evaluations_of(self.study, cell):
            if is_there(evaluation.record):
                self._evaluated += evaluation_work.relative_cost(evaluation)
            else:
                self.ready.add(self._evaluation(cell.label, cell.config, evaluation))
        for checkpoint, path in evaluation_work.diagnoses_of(self.study, cell).items():
            if not is_there(path):
                settings = self.study.evaluation
                more = {"checkpoint": checkpoint, "epsilon": settings.epsilon, "images": settings.images}
                facts = self._payload("diagnose", cell.label, str(cell.trial), cell.config, result=path, **more)
                name = path.removesuffix(".json").replace("/", "-")
                self.ready.add(Job("diagnose", name, name, cell.label, cell.seed, 1.0, facts))

    def _evaluation(self, label: str, config: Any, evaluation: Evaluation) -> Job:
        name = evaluation.folder.replace("/", "-")
        cost = evaluation_work.relative_cost(evaluation)
        facts = self._payload("evaluate", label, evaluation.trial, config)
        return Job("evaluate", name, name, label, config.seed, cost, facts, evaluation=evaluation)

    def _open_phase(self, job: Job) -> None:
        """The evaluation is ours: queue the pieces of its next phase; without any, its record is written now."""
        assert job.evaluation is not None
        items = next_items(self.store, job.evaluation)
        if not items:
            self.claims.release(job.claim)
        self._open_items[job.claim] = len(items)
        for item in items:
            more = evaluation_work.item_payload(item)
            cost = job.cost / len(items) / len(job.evaluation.attack.phases)
            name = f"{job.name}-{item.phase}-{item.first}-{item.last}"
            piece = Job("evaluate", name, job.claim, job.label, job.seed, cost, {**job.payload, **more})
            piece.evaluation = job.evaluation
            self.ready.add(piece)

    def _close_item(self, job: Job) -> None:
        """After the last piece of a phase the next phase is opened: its images are the survivors of all pieces."""
        self._open_items[job.claim] -= 1
        if self._open_items[job.claim]:
            return
        if job.claim in self._broken:
            self.claims.release(job.claim)
            return
        assert job.evaluation is not None
        facts = {
            key: value for key, value in job.payload.items() if key not in ("evaluation", "phase", "first", "last")
        }
        cost = evaluation_work.relative_cost(job.evaluation)
        name = job.claim
        whole = Job("evaluate", name, name, job.label, job.seed, cost, facts, evaluation=job.evaluation)
        self._open_phase(whole)

    def _note_best(self, label: str, metrics: Mapping[str, float]) -> None:
        for name in ("best_validation_validation_pgd_accuracy", "best_test_test_pgd_accuracy"):
            if name in metrics:
                self.best[label] = max(self.best.get(label, 0.0), metrics[name])
                return

    def _expected_trainings(self) -> float:
        """The cost of what waits for a search: its next candidates, its label's trainings."""
        waiting = sum(relative_cost(cell.config) for cell in self.cells if cell.trial is None)
        for label, search in self.searches.open.items():
            missing = search.wanted - len(search.candidates) if search else self.study.search[label].candidates
            waiting += 0.6 * missing * relative_cost(self.study.search_config(label, {}))
        return waiting

    def _expected_evaluations(self) -> float:
        return max(0.0, self._evaluation_cost * len(self.cells) - self._evaluated)
