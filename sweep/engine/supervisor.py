"""The consequences of a Tune trial's end: what caused a failure, and whether the piece is tried again.

Ray Tune itself retries nothing (`max_failures=0`). A failed piece is suggested again as a new trial, because only this
module knows what the failure means. Losing a process or a node does not count as a failure. A machine's fault counts
against its node, and the piece is tried elsewhere. Three failures without a finished epoch, or a fault of the loss, are
final.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sweep.engine.nodes import FAST_SECONDS, Nodes
from sweep.errors import SweepEnded
from sweep.work.failures import PieceFailure
from sweep.work.item import Item
from sweep.work.pace import Pace
from sweep.work.pieces import Metrics
from sweep.work.queue import Queue
from sweep.work.worker import last_lines

DEATHS = 10  # deaths of a piece's processes in a row without progress, too many for preemption
NO_NODE_SECONDS = 60.0


@dataclass
class Attempt:
    """A Tune trial that has been suggested and has not ended."""

    item: Item
    node: str = ""
    since: float = field(default_factory=time.monotonic)
    own_process: bool = False
    is_held: bool = False  # its node is faulty: the trial holds the device, and the piece is tried elsewhere


class Supervisor:
    """A supervisor that follows the Tune trials of a sweep and tells its queue how they end.

    Args:
        retries: How often a piece may fail before it is recorded as failed.
        alive: Return the ids of Ray's living nodes.
        patience: Seconds to wait for a good node when all are bad.
    """

    def __init__(
        self, queue: Queue, retries: int, alive: Callable[[], set[str]], patience: float = NO_NODE_SECONDS
    ) -> None:
        self.queue, self.retries, self.alive, self.patience = queue, retries, alive, patience
        self.nodes = Nodes()
        self.attempts: dict[str, Attempt] = {}  # by the Tune trial's id
        self.dead: dict[str, list[str]] = {}  # by piece: owners of leases whose processes have ended
        self._worked = time.monotonic()

    @property
    def is_done(self) -> bool:
        """True when no trial remains to wait for. Trials that hold the device of a bad node do not count."""
        at_work = any(not attempt.is_held for attempt in self.attempts.values())
        return not at_work and (self.queue.complete or not self.queue.may_start())

    def start(self, trial: str, helpers: int) -> dict[str, Any] | None:
        """Return the config of the next piece for the Tune trial of this id, or None while there is none."""
        item = self.queue.next(helpers=helpers)
        if item is None:
            return None
        self.attempts[trial] = Attempt(item)
        self.queue.owners.add(trial)
        config = item.piece.tune_config(self.queue.study.name)
        if item.attempt > 1:
            config["title"] += f" (attempt {item.attempt})"
        alive = self.alive()
        return config | {
            "attempt": item.attempt,
            "owner": trial,
            "dead_owners": self.dead.get(item.piece.name, []),
            "bad_nodes": {name: fault for name, fault in self.nodes.faults().items() if name in alive},
            "avoided_nodes": sorted(item.avoided) if self.nodes.others(item.avoided, alive) else [],
            "gpu_bytes": item.gpu_bytes,
        }

    def hear(self, trial: str, result: Metrics) -> None:
        """Record a report of a running trial."""
        attempt = self.attempts.get(trial)
        if attempt is None:
            return
        item = attempt.item
        if "node" in result:
            attempt.node, attempt.since = result["node"], time.monotonic()
            self.queue.begin(item)
            self.nodes.hear(result["node"], result["host"], result["gpu_bytes"])
        if result.get("state") == "held" and not attempt.is_held:
            attempt.is_held = True
            if self.nodes.fault(attempt.node) is None:
                self.nodes.hear(attempt.node, result.get("host", attempt.node), fault=result["fault"])
            self.queue.again(item)
        for row in (*result.get("earlier", ()), result):
            if "epoch" in row:
                item.reached(row["epoch"])
        if "images" in result and "free" in result:
            item.got_further()
            item.free = result["free"]
        if "epoch" in result or "free" in result:
            self.nodes.worked(attempt.node, Pace.kind(item))
            self._worked = time.monotonic()

    def finished(self, trial: str, metrics: Metrics) -> None:
        """Record a trial that returned."""
        attempt = self.attempts.pop(trial, None)
        if attempt is None or attempt.is_held:
            return
        self._worked = time.monotonic()
        match metrics.get("state"):
            case "taken":
                self.queue.refused(attempt.item)
            case "shared":
                self.queue.shared(attempt.item)
            case "elsewhere" if self._suits_nobody(attempt.item):
                self.queue.left_alone(attempt.item, "out of memory, and no larger GPU is left in the cluster", [])
            case "elsewhere":
                self.queue.elsewhere(attempt.item)
            case None:  # it was stopped before its first report
                self.queue.again(attempt.item)
            case _:
                self.dead.pop(attempt.item.piece.name, None)
                self.nodes.worked(attempt.node, Pace.kind(attempt.item))
                self.queue.finished(attempt.item, metrics)

    def stopped(self, trial: str) -> None:
        """Record a trial that was stopped with the sweep."""
        attempt = self.attempts.pop(trial, None)
        if attempt is not None and not attempt.is_held:
            self.queue.again(attempt.item)

    def failed(self, trial: str, failure: PieceFailure) -> None:
        """Decide how to continue after the failure of a piece's trial."""
        attempt = self.attempts.pop(trial, None)
        if attempt is None or attempt.is_held:
            return
        item, piece = attempt.item, attempt.item.piece
        item.trouble = failure.reason
        self.dead.setdefault(piece.name, []).append(trial)
        alive = self.alive()
        if failure.kind == "store" or (failure.kind == "died" and attempt.node and attempt.node not in alive):
            self.queue.again(item)  # no fault of the piece: the store failed, or the node was preempted
        elif failure.kind == "died":
            item.deaths += 1
            if item.deaths > DEATHS and not attempt.node:  # if no process starts at all, the piece is not to blame
                self.queue.left_alone(item, failure.reason, [])
            else:
                self._retry(item, failure.reason, item.deaths <= DEATHS)
        elif failure.kind == "machine":
            item.failures += 1
            item.avoided.add(attempt.node)
            if time.monotonic() - attempt.since < FAST_SECONDS:
                self.nodes.failed(attempt.node, Pace.kind(item), piece.name, failure.reason)
            if item.failures <= self.retries or self.nodes.others(item.avoided, alive):
                self.queue.again(item)
            else:
                self.queue.left_alone(item, failure.reason, self._log(item))
        elif failure.kind == "memory":
            larger = not item.gpu_bytes and self.nodes.larger_gpu(failure.gpu_bytes, alive)
            item.gpu_bytes = failure.gpu_bytes
            self._retry(item, failure.reason, larger)
        else:
            item.failures += 1
            self._retry(item, failure.reason, failure.kind != "loss" and item.failures <= self.retries)

    def _retry(self, item: Item, reason: str, again: bool) -> None:
        if again:
            self.queue.again(item)
        else:
            self.queue.gave_up(item, reason, self._log(item))

    def _log(self, item: Item) -> list[str]:
        return last_lines(self.queue.store, item.piece.trial)

    def _suits_nobody(self, item: Item) -> bool:
        """Return whether a piece needs a larger GPU than any that remains."""
        return bool(item.gpu_bytes) and not self.nodes.larger_gpu(item.gpu_bytes, self.alive())

    def end_without_nodes(self) -> None:
        """End the sweep when all nodes are bad, unless others are at work or may join in time."""
        at_work = any(attempt.node and not attempt.is_held for attempt in self.attempts.values())
        if at_work or not self.nodes.faults():
            self._worked = time.monotonic()
        elif time.monotonic() - self._worked > self.patience and not self.nodes.others(set(), self.alive()):
            named = "\n".join(f"  {host}: {fault}" for host, fault in self.nodes.bad().items())
            raise SweepEnded(f"no node of the cluster can work:\n{named}\nfinished work is in the store")
