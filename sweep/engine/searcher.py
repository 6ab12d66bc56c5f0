"""The links between Ray Tune and a study: a searcher that proposes trials, and a callback that follows them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.tune.callback import Callback
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from sweep.cluster.resources import TrialResources, nodes, slots
from sweep.engine.supervisor import Supervisor
from sweep.errors import SweepEnded
from sweep.store.lease_upkeep import give_back
from sweep.store.patient import StoreGone
from sweep.work.failures import PieceFailure

START_SECONDS = 120.0  # additional time before a process's first sign of life: imports, data
LOOK_SECONDS = 5.0
STALL_SECONDS = 10.0  # a driver that was blocked for longer could not receive signs of life
HOLD_BACK_SECONDS = 360.0  # by then every process that is reused should have ended its piece
OWN_PROCESS_SECONDS = 120.0  # a longer piece gets its own process, which bears its title
MOST_WAITING = 64  # trials without a device on a cluster that scales, for which an autoscaler starts nodes


class Unsaved:
    """A part of Tune that is never pickled or copied. It holds leases and files; Tune's folder is temporary here."""

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


class StudySearcher(Unsaved, Searcher):
    """A searcher that suggests the next missing piece of a study, according to the store.

    Args:
        stopping: Return whether the user has asked to stop.
        scales: True if an autoscaler adds nodes for waiting trials.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        resources: TrialResources,
        by_piece: Mapping[tuple[str, str], TrialResources],
        *,
        stopping: Callable[[], bool] = lambda: False,
        scales: bool = False,
    ) -> None:
        super().__init__()
        self.supervisor, self.resources, self.by_piece = supervisor, resources, by_piece
        self.stopping, self.scales = stopping, scales
        self.fault: Exception | None = None  # the reason why the sweep ended; Tune would wrap it in its own error
        self._slots, self._looked = 1, -math.inf

    def suggest(self, trial_id: str) -> Any:
        """Return the config of the next trial, None while everything must wait, or FINISHED when nothing remains."""
        if self.is_over():
            return Searcher.FINISHED
        if self.waiting() >= self.most_waiting():
            return None
        config = self.guarded(lambda: self.supervisor.start(trial_id, helpers=self._slots))
        if config is None:
            return None
        item = self.supervisor.attempts[trial_id].item
        stage = "train" if config["stage"] in ("search", "train") else "attack"
        own = self.by_piece.get((config["column"], stage), self.resources)
        expected = self.supervisor.queue.pace.expected_seconds(item)
        own_process = expected > OWN_PROCESS_SECONDS
        if not own_process and self._own_process_waits():
            self.guarded(lambda: self.supervisor.stopped(trial_id))
            return None
        self.supervisor.attempts[trial_id].own_process = own_process
        return {**config, "resources": own.per_trial(), "own_process": own_process}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if error or self.fault is not None:
            return  # the callback handles errors
        if self.stopping() or not (result or {}).get("state"):
            self.guarded(lambda: self.supervisor.stopped(trial_id))
        else:
            self.guarded(lambda: self.supervisor.finished(trial_id, result or {}))

    def is_over(self) -> bool:
        """Return whether all trials may end: nothing remains, the user has asked to stop, or an error occurred."""
        return self.fault is not None or self.stopping() or bool(self.guarded(lambda: self.supervisor.is_done, True))

    def waiting(self) -> int:
        """Return how many trials have no device yet."""
        return sum(not attempt.node for attempt in list(self.supervisor.attempts.values()))

    def most_waiting(self) -> int:
        """Return how many trials may wait for a device.

        A few more trials than devices keep all devices busy. On a cluster that scales, many waiting trials show the
        autoscaler how much work there is.
        """
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._slots, self._looked = slots(self.resources), time.monotonic()
        return max(self._slots + 1, MOST_WAITING if self.scales else 0)

    def _own_process_waits(self) -> bool:
        """Return whether a piece with a process of its own waits for a device. Processes that are reused would keep it
        waiting to the end, so they get nothing more for a while; on a cluster that scales another node comes."""
        now = time.monotonic()
        return not self.scales and any(
            attempt.own_process and not attempt.node and now - attempt.since < HOLD_BACK_SECONDS
            for attempt in list(self.supervisor.attempts.values())
        )

    def needs_nodes(self) -> bool:
        """Return whether any trial needs a node. Called from another thread."""
        return bool(self.supervisor.attempts)

    def guarded(self, act: Callable[[], Any], otherwise: Any = None) -> Any:
        """Call a function of ours. Any error ends the sweep with its message."""
        if self.fault is None:
            try:
                return act()
            except StoreGone as fault:
                self.fault = SweepEnded(f"{fault}\nfinished work is kept, and the same command goes on from there")
            except Exception as fault:
                self.fault = fault
        return otherwise

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the remaining work follows from the store."""

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a sweep goes on from its store, not from Tune's folder")


class Watch(Unsaved, Callback):
    """A callback that follows every trial, ends trials without a sign of life, and updates the display."""

    def __init__(self, searcher: StudySearcher, hang_seconds: float, on_step: Callable[[], None]) -> None:
        self.searcher, self.hang_seconds, self.on_step = searcher, hang_seconds, on_step
        self.spans: list[tuple[float, float, float]] = []  # start, end and devices of trials that have ended
        self._began: dict[str, tuple[float, float]] = {}  # start and devices of running trials
        self._seen: dict[str, float] = {}
        self._actors: dict[str, Any] = {}
        self._failures: dict[str, PieceFailure] = {}
        self._stepped = time.monotonic()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._seen[trial.trial_id] = time.monotonic() + START_SECONDS
        self._began[trial.trial_id] = time.time(), trial.config["resources"].get("gpu", 0.0) or 1.0

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        name = trial.trial_id
        self._seen[name] = time.monotonic()
        actor = result.pop("actor", None)
        if actor is not None:
            self._actors[name] = actor
        if "failure" in result:
            self._failures[name] = PieceFailure(**result["failure"])
        self.searcher.guarded(lambda: self.searcher.supervisor.hear(name, result))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._gone(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        name = trial.trial_id
        failure = self._failures.pop(name, None) or _death(trial)
        self._gone(name)
        self.searcher.guarded(lambda: give_back(self.searcher.supervisor.queue.store, {name}))
        self.searcher.guarded(lambda: self.searcher.supervisor.failed(name, failure))

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now = time.monotonic()
        if now - self._stepped > STALL_SECONDS:  # blocked, for example by a slow store: no report was heard
            self._seen = {name: seen + now - self._stepped for name, seen in self._seen.items()}
        for name in [name for name, seen in self._seen.items() if now - seen > self.hang_seconds]:
            minutes = self.hang_seconds / 60
            self._failures[name] = PieceFailure("hung", f"no progress for {minutes:.1f} minutes; the process was ended")
            self._seen[name] = math.inf
            if name in self._actors:
                ray.kill(self._actors[name])
        self.on_step()
        self._stepped = time.monotonic()

    def device_seconds(self) -> float:
        """Return the seconds for which devices have worked. A share of a GPU counts as that share."""
        now = time.time()
        return sum((end - start) * devices for start, end, devices in self.spans) + sum(
            (now - start) * devices for start, devices in self._began.values()
        )

    def device_use(self, slots: int) -> float | None:
        """Return the share of the time between the first start and the last end in which devices worked."""
        first = min((start for start, _, _ in self.spans), default=0.0)
        last = max((end for _, end, _ in self.spans), default=0.0)
        available = slots * (last - first)
        return min(1.0, sum(end - start for start, end, _ in self.spans) / available) if available > 0 else None

    def _gone(self, name: str) -> None:
        self._seen.pop(name, None)
        self._actors.pop(name, None)
        if name in self._began:
            start, devices = self._began.pop(name)
            self.spans.append((start, time.time(), devices))


class StopWhenOver(Unsaved, Stopper):
    """A stopper that ends the remaining trials when the sweep is over.

    These are the trials that hold the device of a bad node or, if the user has asked to stop, all trials. The store
    holds what a training needs to continue.
    """

    def __init__(self, searcher: StudySearcher) -> None:
        self.searcher = searcher

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.searcher.is_over()


def living_nodes() -> Callable[[], set[str]]:
    """Return a function that returns the ids of living nodes. It asks Ray every few seconds at most."""
    names: set[str] = set()
    looked = -math.inf

    def alive() -> set[str]:
        nonlocal names, looked
        if time.monotonic() - looked > LOOK_SECONDS:
            names, looked = {node["NodeID"] for node in nodes()}, time.monotonic()
        return names

    return alive


def _death(trial: Any) -> PieceFailure:
    """Return why a process died. Exceeding the memory of its machine is the piece's own failure."""
    text = trial.get_error() or ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "OutOfMemoryError" in text or "low on memory" in text:
        return PieceFailure(
            "trial",
            "its process was ended because the machine ran out of memory; name what a trial "
            "needs with --set resources.memory=16GB",
        )
    return PieceFailure("died", lines[-1][:500] if lines else "the process died")
