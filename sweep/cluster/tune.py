"""Ray Tune's side of a sweep: its trials are processes that ask for our tasks, its callback watches over them."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.callback import Callback
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from sweep.cluster.desk import NO_NODE_SECONDS, Desk, Worker
from sweep.cluster.devices import TrialResources, nodes, slots
from sweep.cluster.failures import TaskFailure
from sweep.cluster.worker import Process
from sweep.errors import SweepEnded
from sweep.store.patient import StoreGone
from sweep.work.tasks import Setting
from sweep.work.work import Work

START_SECONDS = 120.0  # a process may take this much longer before its first sign of life: imports, data
LOOK_SECONDS = 5.0
STALL_SECONDS = 10.0  # a driver that was kept for longer has heard nobody meanwhile
# Processes that wait for a device. An autoscaler starts nodes for them, so that many wait where there is one.
FEW_WAITING, MANY_WAITING = 4, 64

ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # one file per format and trial in a folder that is scratch
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # evaluations report no accuracy
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours stops cleanly also while Tune waits for work
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Tune's own state is never restored: the store is the truth
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_MAX_PENDING_TRIALS_PG": "100000",  # the queue says how many wait, and follows the work that is left
    "RAY_AIR_NEW_OUTPUT": "0",
}


class Unsaved:
    """Tune pickles its parts into a folder that is scratch here; ours hold leases and files, and are left out."""

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


class Queue(Unsaved, Searcher):
    """Tune asks for the next trial: another process, as long as there is work that it could begin at once."""

    def __init__(
        self,
        work: Work,
        setting: Setting,
        resources: TrialResources,
        stopping: Callable[[], bool],
        *,
        retries: int = 3,
        scales: bool = False,
        patience: float = NO_NODE_SECONDS,
    ) -> None:
        super().__init__()
        self.work, self.setting, self.resources, self.stopping = work, setting, resources, stopping
        self.desk = Desk(work, retries, self._alive, patience)
        self.least_waiting = MANY_WAITING if scales else FEW_WAITING
        self.fault: Exception | None = None  # what ended the sweep; Tune would wrap it in an error of its own
        self._slots, self._nodes, self._looked = 1, set[str](), -math.inf

    def is_over(self) -> bool:
        return self.fault is not None or self.stopping()

    def is_done(self) -> bool:
        """Whether every process may end as it is: none has a task, and there is none left."""
        return self.is_over() or bool(self.guarded(lambda: self.desk.is_done))

    def suggest(self, trial_id: str) -> Any:
        if self.is_done():
            return Searcher.FINISHED
        if self.guarded(lambda: self.desk.wanted(1) <= 0 or self.waiting() >= max(self.least_waiting, self.slots())):
            return None
        self.desk.workers[trial_id] = Worker()
        return {"setting": self.setting}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if not error:  # the callback sees errors themselves
            self.guarded(lambda: self.desk.left(trial_id))

    def waiting(self) -> int:
        """Processes that have no device yet."""
        return sum(worker.place is None for worker in list(self.desk.workers.values()))

    def needs_nodes(self) -> bool:
        """Called from another thread: whether anything waits for a device."""
        return self.desk.running > 0 or self.waiting() > 0

    def surplus(self) -> int:
        """How many of them wait in vain: another driver has taken the work."""
        return int(self.guarded(lambda: max(0, -self.desk.wanted(0))) or 0)

    def guarded(self, act: Callable[[], Any]) -> Any:
        """Whatever goes wrong in the driver ends the sweep with that message."""
        if self.fault is None:
            try:
                return act()
            except StoreGone as fault:
                self.fault = SweepEnded(f"{fault}\nfinished work is kept, and the same command goes on from there")
            except Exception as fault:
                self.fault = fault
        return True

    def slots(self) -> int:
        self._look()
        return self._slots

    def _alive(self) -> set[str]:
        self._look()
        return self._nodes

    def _look(self) -> None:
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._slots, self._nodes = slots(self.resources), {node["NodeID"] for node in nodes()}
            self._looked = time.monotonic()
            self.desk.work.evaluations.at_once = self._slots

    def save(self, checkpoint_path: str) -> None:
        """Nothing: what is left to do follows from the store."""

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a sweep goes on from its store, not from Tune's folder")


class Watch(Unsaved, Callback):
    """Hears every process; gives out tasks; ends processes that give no sign of life; keeps the display alive."""

    def __init__(self, queue: Queue, hang_seconds: float, on_step: Callable[[], None]) -> None:
        self.queue, self.hang_seconds, self.on_step = queue, hang_seconds, on_step
        self.seen: dict[str, float] = {}
        self.hung: dict[str, str] = {}
        self.dropped: set[str] = set()  # ended because another driver has their task
        self.busy: dict[str, float] = {}  # start of each running task
        self.trials: dict[str, Any] = {}
        self.spans: list[tuple[float, float]] = []  # starts and ends of tasks, retries included
        self._stepped = time.monotonic()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.seen[trial.trial_id] = time.monotonic() + START_SECONDS
        self.trials[trial.trial_id] = trial

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        name, desk = trial.trial_id, self.queue.desk
        self.seen[name] = time.monotonic()
        if "epoch" in result or "images" in result:
            desk.progressed(name, result.get("epoch"))
        if "state" in result:
            self._end(name)
            self.queue.guarded(lambda: desk.ended(name, result["ended"] - result["started"], result["found"]))
        if "failure" in result:
            self._end(name)
            self.queue.guarded(lambda: desk.failed(name, result["failure"]))
        if "asks" in result and not self.queue.is_over():
            order = self.queue.guarded(lambda: desk.order(name, result["place"]))
            if self.queue.fault is not None:
                return
            worker = desk.workers[name]
            if worker.assigned is not None:
                self.busy[name] = time.time()
                trial.config["task"] = worker.assigned.task
            # In order with the call by which Tune lets the process go on.
            trial.temporary_state.ray_actor.assign.remote(order)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._gone(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        name, desk = trial.trial_id, self.queue.desk
        self._gone(name)
        if name in self.dropped:
            self.queue.guarded(lambda: desk.lost(name))
        elif name in self.hung:
            self.queue.guarded(lambda: desk.failed(name, TaskFailure("hung", self.hung[name])))
        else:
            self.queue.guarded(lambda: desk.failed(name, death(trial)))

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now = time.monotonic()
        if now - self._stepped > STALL_SECONDS:  # a store that did not answer, tables: nobody could be heard
            self.seen = {name: seen + now - self._stepped for name, seen in self.seen.items()}
        for name in [name for name in self.busy if now - self.seen[name] > self.hang_seconds]:
            self.hung[name] = f"no progress for {self.hang_seconds / 60:.1f} minutes; the process was ended"
            self._kill(name)
        for assigned in self.queue.guarded(self.queue.work.lost_leases) if self.queue.fault is None else ():
            for name, worker in self.queue.desk.workers.items():
                if worker.assigned is assigned and name not in self.dropped:
                    self.dropped.add(name)
                    self._kill(name)
        self.on_step()
        self._stepped = time.monotonic()

    def busy_seconds(self) -> float:
        return sum(end - start for start, end in self.spans) + sum(time.time() - start for start in self.busy.values())

    def _kill(self, name: str) -> None:
        actor = self.trials[name].temporary_state.ray_actor if name in self.trials else None
        self._end(name)
        if actor is not None:
            ray.kill(actor)

    def _gone(self, name: str) -> None:
        self.trials.pop(name, None)
        self.seen.pop(name, None)
        self._end(name)

    def _end(self, name: str) -> None:
        start = self.busy.pop(name, None)
        if start is not None:
            self.spans.append((start, time.time()))


class Silent(TrialProgressCallback):
    """In place of the one that Tune adds by itself, which prints amid the display whatever its verbosity."""

    def __init__(self) -> None:
        """It keeps nothing."""

    def on_trial_result(self, *arguments: Any, **info: Any) -> None:
        """Shown by the display."""

    def on_trial_error(self, *arguments: Any, **info: Any) -> None:
        """Shown by the display."""

    def on_trial_complete(self, *arguments: Any, **info: Any) -> None:
        """Shown by the display."""


class Withdrawing(Unsaved, FIFOScheduler):
    """Takes back processes that wait for a device without anything to do there: an autoscaler would start nodes."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.queue = queue
        self._next = 0.0

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        if time.monotonic() > self._next:
            self._next = time.monotonic() + 1.0
            surplus = self.queue.surplus() if self.queue.fault is None and self.queue.waiting() else 0
            waiting = [trial for trial in tune_controller.get_live_trials() if trial.status == trial.PENDING]
            for trial in waiting[len(waiting) - surplus :] if surplus else ():
                tune_controller.stop_trial(trial)
        return super().choose_trial_to_run(tune_controller)


class StopAll(Unsaved, Stopper):
    """Stops everything when asked to; what a training needs to go on is in the store, so little is lost."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self.stopping = stopping

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.stopping()


def fit(queue: Queue, watch: Watch, resources: TrialResources, *, scratch: str, callbacks: list[Any]) -> None:
    os.environ.update(ENVIRONMENT)
    for name in ("ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    tuner = tune.Tuner(
        tune.with_resources(Process, resources.per_trial()),
        tune_config=tune.TuneConfig(search_alg=queue, scheduler=Withdrawing(queue), num_samples=-1),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=scratch,
            verbose=0,
            stop=StopAll(queue.is_done),
            failure_config=tune.FailureConfig(max_failures=0),  # what a failure means is decided at the desk
            callbacks=[watch, Silent(), *callbacks],
        ),
    )
    with _working_in(scratch):
        tuner.fit()
    if queue.fault is not None:
        raise queue.fault


@contextlib.contextmanager
def _working_in(folder: str) -> Iterator[None]:
    """Tune asks where it works, and a Ray job's folder is gone once another node of its machine unpacks it anew."""
    here = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    try:
        yield
    finally:
        os.fchdir(here)
        os.close(here)


def death(trial: Any) -> TaskFailure:
    """Of a process, by what Tune wrote of it; one that took too much of its machine's memory is its task's failure."""
    try:
        text = Path(trial.error_file).read_text()
    except (OSError, TypeError, AttributeError):
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "OutOfMemoryError" in text or "low on memory" in text:
        return TaskFailure(
            "trial",
            "its process was ended because the machine ran out of memory; name what a trial "
            "needs with --set resources.memory=16GB",
        )
    return TaskFailure("died", lines[-1][:500] if lines else "the process died")
