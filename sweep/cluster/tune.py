"""Ray Tune's side of a sweep: its searcher hands out our work, its callback watches over what runs."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.callback import Callback
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from sweep.cluster.devices import TrialResources, slots
from sweep.cluster.worker import last_lines, tune_trainable
from sweep.work.ready import Assigned
from sweep.work.tasks import Setting
from sweep.work.work import Work

SLOWER_THAN_BEFORE = 20  # an epoch may take this many times the slowest one so far before the trial counts as hung
START_SECONDS = 120.0  # a process may take this much longer before its first sign of life: imports, data
SLOTS_SECONDS = 5.0

ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # one file per format and trial in a folder that is scratch
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # evaluations report no accuracy
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours stops cleanly also while Tune waits for work
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Tune's own state is never restored: the store is the truth
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}


class Unsaved:
    """Tune pickles its parts into a folder that is scratch here; ours hold leases and files, and are left out."""

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


class Queue(Unsaved, Searcher):
    """Tune asks for the next configuration: the most urgent task, as long as devices are free."""

    def __init__(self, work: Work, setting: Setting, resources: TrialResources, stopping: Callable[[], bool]) -> None:
        super().__init__()
        self.work, self.setting, self.resources, self.stopping = work, setting, resources, stopping
        self.assigned: dict[str, Assigned] = {}
        self.fault: Exception | None = None  # what ended the sweep; Tune would wrap it in an error of its own
        self._slots, self._counted = 1, -math.inf

    def is_over(self) -> bool:
        return self.fault is not None or self.stopping()

    def suggest(self, trial_id: str) -> Any:
        if self.is_over():
            return Searcher.FINISHED
        try:
            return self._next(trial_id)
        except Exception as fault:
            self.fault = fault
            return Searcher.FINISHED

    def _next(self, trial_id: str) -> Any:
        if time.monotonic() - self._counted > SLOTS_SECONDS:
            self._slots, self._counted = slots(self.resources), time.monotonic()
        # As many again wait beside those that run: a process that ends finds its next piece at once.
        if len(self.assigned) >= 2 * self._slots:
            return None
        assigned = self.work.next_task()
        if assigned is not None:
            self.assigned[trial_id] = assigned
            return {"task": assigned.task, "setting": self.setting}
        if not self.assigned and (self.work.complete or not self.work.may_start()):
            return Searcher.FINISHED
        return None

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if error:
            return  # the callback sees the error itself
        assigned = self.assigned.pop(trial_id)
        try:
            if result and result.get("state"):
                assigned.seconds = result.get("ended", 0.0) - result.get("started", 0.0)
                self.work.finished(assigned)
            else:
                self.work.interrupted(assigned)
        except Exception as fault:
            self.fault = fault

    def gave_up(self, trial_id: str, reason: str) -> None:
        assigned = self.assigned.pop(trial_id)
        try:
            self.work.gave_up(assigned, reason, last_lines(self.work.store, assigned.task.trial))
        except Exception as fault:
            self.fault = fault

    def save(self, checkpoint_path: str) -> None:
        """Nothing: what is left to do follows from the store."""

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a sweep goes on from its store, not from Tune's folder")


class Watch(Unsaved, Callback):
    """Sees every start, result and failure; ends trials that make no progress; keeps the display alive."""

    def __init__(self, queue: Queue, hang_seconds: float, on_step: Callable[[], None]) -> None:
        self.queue, self.hang_seconds, self.on_step = queue, hang_seconds, on_step
        self.seen: dict[str, float] = {}
        self.slowest: dict[str, float] = {}
        self.hung: dict[str, str] = {}
        self.busy: dict[str, float] = {}  # start of each running piece
        self.trials: dict[str, Any] = {}
        self.spans: list[tuple[float, float]] = []  # starts and ends of pieces, retries included

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.seen[trial.trial_id] = time.monotonic()
        self.busy[trial.trial_id] = time.time()
        self.trials[trial.trial_id] = trial
        assigned = self.queue.assigned[trial.trial_id]
        assigned.started = True
        self.queue.work.pace.begin(assigned)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        # An epoch's own time: between two reports, the first of which came after imports and data.
        self.slowest[trial.trial_id] = max(self.slowest.get(trial.trial_id, 0.0), result.get("seconds", 0.0))
        self.seen[trial.trial_id] = time.monotonic()
        if "epoch" in result and trial.trial_id in self.queue.assigned:
            self.queue.assigned[trial.trial_id].reached(result["epoch"])
        if result.get("repeats"):
            trial.max_failures = 0  # the failure that follows would come again: no retry
        if result.get("state"):
            self._end(trial.trial_id)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.slowest.pop(trial.trial_id, None)  # the new process starts with imports again
        assigned = self.queue.assigned[trial.trial_id]
        assigned.started = False  # it waits for a device until its next start
        assigned.attempt, assigned.trouble = assigned.attempt + 1, self.hung.get(trial.trial_id) or _reason(trial)
        self._end(trial.trial_id)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._end(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._end(trial.trial_id)
        self.queue.gave_up(trial.trial_id, self.hung.get(trial.trial_id) or _reason(trial))

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now = time.monotonic()
        for name in list(self.busy):
            limit = self.hang_seconds + START_SECONDS
            if name in self.slowest:
                limit = max(self.hang_seconds, SLOWER_THAN_BEFORE * self.slowest[name])
            if now - self.seen[name] > limit:
                self.hung[name] = f"no progress for {limit / 60:.1f} minutes; the process was ended"
                actor = self.trials[name].temporary_state.ray_actor
                self._end(name)
                if actor is not None:
                    ray.kill(actor)
        self.on_step()

    def busy_seconds(self) -> float:
        return sum(end - start for start, end in self.spans) + sum(time.time() - start for start in self.busy.values())

    def _end(self, trial_id: str) -> None:
        self.trials.pop(trial_id, None)
        start = self.busy.pop(trial_id, None)
        if start is not None:
            self.spans.append((start, time.time()))


class StopAll(Unsaved, Stopper):
    """Stops everything when asked to; checkpoints are in the store after every epoch, so nothing is lost."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self.stopping = stopping

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.stopping()


def fit(
    queue: Queue, watch: Watch, resources: TrialResources, *, retries: int, scratch: str, callbacks: list[Any]
) -> None:
    os.environ.update(ENVIRONMENT)
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(1, slots(resources)))
    for name in ("ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    tune.Tuner(
        tune.with_resources(tune_trainable, resources.per_trial()),
        tune_config=tune.TuneConfig(search_alg=queue, num_samples=-1, reuse_actors=True),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=scratch,
            verbose=0,
            stop=StopAll(queue.is_over),
            failure_config=tune.FailureConfig(max_failures=retries),
            callbacks=[watch, *callbacks],
        ),
    ).fit()
    if queue.fault is not None:
        raise queue.fault


def _reason(trial: Any) -> str:
    """The last line of the last error, as Tune wrote it beside the trial."""
    try:
        lines = [line.strip() for line in Path(trial.error_file).read_text().splitlines() if line.strip()]
    except (OSError, TypeError, AttributeError):
        lines = []
    return lines[-1][:500] if lines else "the process died"
