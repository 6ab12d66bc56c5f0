"""Who does what: processes ask for tasks here, and what went wrong with one decides what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.cluster.failures import TaskFailure
from sweep.cluster.nodes import FAST_SECONDS, Nodes
from sweep.cluster.place import Place
from sweep.cluster.worker import Order, last_lines
from sweep.errors import SweepEnded
from sweep.work.pace import kind
from sweep.work.ready import Assigned
from sweep.work.work import Work

IDLE_SECONDS = 20.0  # a process that finds nothing for so long ends, and its node may go
SHORT_WAIT, LONG_WAIT, BAD_NODE_WAIT = 0.05, 1.0, 5.0
DEATHS = 10  # of processes, one after the other and none of them any further: that is no preemption
NO_NODE_SECONDS = 60.0


@dataclass
class Worker:
    """A process that has asked at least once, or waits for a device."""

    place: Place | None = None
    assigned: Assigned | None = None
    since: float = field(default_factory=time.monotonic)  # it has its task, or none
    wait: float = SHORT_WAIT
    trial: str = ""  # whose weights it may have loaded

    @property
    def node(self) -> str:
        return self.place.node if self.place else ""


class Desk:
    """`alive` names the nodes that Ray has now; bad ones alone are waited with for `patience` seconds."""

    def __init__(
        self, work: Work, retries: int, alive: Callable[[], set[str]], patience: float = NO_NODE_SECONDS
    ) -> None:
        self.work, self.retries, self.alive, self.patience = work, retries, alive, patience
        self.nodes = Nodes()
        self.workers: dict[str, Worker] = {}
        self._worked = time.monotonic()

    @property
    def running(self) -> int:
        return sum(worker.assigned is not None for worker in list(self.workers.values()))

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to wait for."""
        return not self.running and (self.work.complete or not self.work.may_start())

    def wanted(self, at_most: int) -> int:
        """How many more processes could begin something at once; those that wait for a device, or for work, count."""
        supply = sum(worker.assigned is None and not self._is_parked(worker) for worker in self.workers.values())
        return self.work.startable(supply + at_most) - supply

    def order(self, name: str, place: Place) -> Order:
        """What a process is to do that asks from this place."""
        worker = self.workers.setdefault(name, Worker())
        worker.place = place
        self.nodes.hear(place)
        if self._is_parked(worker):
            self._end_without_nodes()
            return BAD_NODE_WAIT  # as long as it waits there, nothing else is sent there
        assigned = self.work.next_task(lambda one: self._suits(one, worker), trial=worker.trial)
        if assigned is not None:
            worker.assigned, worker.since, worker.wait = assigned, time.monotonic(), SHORT_WAIT
            worker.trial = assigned.task.trial
            assigned.started = True
            self.work.pace.begin(assigned)
            self._worked = time.monotonic()
            return assigned.task
        if not self.running:
            self._give_up_what_suits_nobody()
        if self.is_done or time.monotonic() - worker.since > IDLE_SECONDS:
            return None
        worker.wait = min(2 * worker.wait, LONG_WAIT)
        return worker.wait

    def progressed(self, name: str, epoch: int | None = None) -> None:
        worker = self.workers[name]
        if worker.assigned is None:
            return
        if epoch is None:
            worker.assigned.got_further()
        else:
            worker.assigned.reached(epoch)
        self.nodes.worked(worker.node, kind(worker.assigned))

    def ended(self, name: str, seconds: float, found: Sequence[Any] = ()) -> None:
        """Its task is done; `found` are records that it has stored."""
        worker = self.workers[name]
        assigned = self._taken_from(worker)
        if assigned is not None:
            assigned.seconds, assigned.found = seconds, found
            self.nodes.worked(worker.node, kind(assigned))
            self.work.finished(assigned)

    def left(self, name: str) -> None:
        """A process is gone that nobody told to stop working: withdrawn, or stopped with the sweep."""
        worker = self.workers.pop(name, None)
        assigned = self._taken_from(worker) if worker else None
        if assigned is not None:
            self.work.interrupted(assigned)

    def lost(self, name: str) -> None:
        """It was ended because another driver has its task."""
        worker = self.workers.pop(name, None)
        assigned = self._taken_from(worker) if worker else None
        if assigned is not None:
            self.work.lost(assigned)

    def failed(self, name: str, failure: TaskFailure) -> None:
        """Of the process with its task; a process without one may have died at its start."""
        worker = self.workers.pop(name, None)
        if worker is None or worker.assigned is None:
            return
        fast = time.monotonic() - worker.since < FAST_SECONDS
        assigned = self._taken_from(worker)
        assert assigned is not None
        assigned.trouble = failure.reason
        alive = self.alive()
        if failure.kind == "died" and worker.node not in alive:
            self.work.interrupted(assigned)  # preempted, with its node
        elif failure.kind == "store":
            self.work.interrupted(assigned)
        elif failure.kind == "died":
            assigned.deaths += 1
            self._retry(assigned, failure.reason, assigned.deaths <= DEATHS)
        elif failure.kind == "machine":
            assigned.failures += 1
            assigned.avoided.add(worker.node)
            if fast:
                self.nodes.failed(worker.node, kind(assigned), assigned.task.name, failure.reason)
            if assigned.failures <= self.retries or self.nodes.others(assigned.avoided, alive):
                self.work.interrupted(assigned)
            else:
                log = last_lines(self.work.store, assigned.task.trial)
                self.work.left_alone(assigned, failure.reason, log)
        elif failure.kind == "memory":
            larger = not assigned.gpu_bytes and self.nodes.larger_gpu(failure.gpu_bytes, alive)
            assigned.gpu_bytes = failure.gpu_bytes
            self._retry(assigned, failure.reason, larger)
        else:
            assigned.failures += 1
            self._retry(assigned, failure.reason, failure.kind != "loss" and assigned.failures <= self.retries)

    def _retry(self, assigned: Assigned, reason: str, again: bool) -> None:
        if again:
            self.work.interrupted(assigned)
        else:
            self.work.gave_up(assigned, reason, last_lines(self.work.store, assigned.task.trial))

    def _taken_from(self, worker: Worker) -> Assigned | None:
        assigned, worker.assigned, worker.since = worker.assigned, None, time.monotonic()
        return assigned

    def _suits(self, assigned: Assigned, worker: Worker) -> bool:
        if assigned.gpu_bytes and worker.place and worker.place.gpu_bytes <= assigned.gpu_bytes:
            return False
        return worker.node not in assigned.avoided or not self.nodes.others(assigned.avoided, self.alive())

    def _is_parked(self, worker: Worker) -> bool:
        return self.nodes.fault(worker.node) is not None

    def _give_up_what_suits_nobody(self) -> None:
        """The larger GPU that a task waited for has gone."""
        alive = self.alive()
        for assigned in list(self.work.ready):
            if assigned.gpu_bytes and not self.nodes.larger_gpu(assigned.gpu_bytes, alive):
                self.work.leave(assigned, "out of memory, and no larger GPU is left in the cluster")

    def _end_without_nodes(self) -> None:
        """Bad nodes are waited with only as long as others work, or may come."""
        if self.running:
            self._worked = time.monotonic()
        elif time.monotonic() - self._worked > self.patience and not self.nodes.others(set(), self.alive()):
            named = "\n".join(f"  {host}: {fault}" for host, fault in self.nodes.bad().items())
            raise SweepEnded(f"no node of the cluster can work:\n{named}\nfinished work is in the store")
