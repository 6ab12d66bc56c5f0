"""Devices that come and go, processes on them that ask three drivers for work, and what it costs the drivers."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from benchmarks.scale.clock import Clock, virtual
from benchmarks.scale.store import MemoryStore
from benchmarks.scale.tasks import left_by, seconds_of
from sweep.cluster.desk import Desk, Worker
from sweep.cluster.failures import TaskFailure
from sweep.cluster.place import Place
from sweep.store import drivers
from sweep.studies.model import Study
from sweep.work.tasks import EvaluationPiece, Task
from sweep.work.work import Work

DEVICES, DRIVERS = 512, 3
UP_SECONDS, DOWN_SECONDS = 6 * 3600.0, 300.0
START_SECONDS = 15.0  # of a process: imports and data
LOOK_SECONDS = 5.0  # a driver looks whether more processes could work
RENEW_SECONDS = drivers.LEASE_SECONDS / 3


@dataclass(eq=False)
class Device:
    """A node with one GPU, and the process on it."""

    number: int
    driver: Driver
    up: bool = True
    process: str = ""  # empty where there is none
    task: Task | None = None
    began: float = 0.0
    loaded: tuple[str, ...] = ()  # trials whose weights its process has, as many as it keeps
    turn: int = 0  # counts tasks, so that the end of one that was interrupted is not taken for that of the next

    @property
    def place(self) -> Place:
        return Place(str(self.number), f"host-{self.number}")


@dataclass(eq=False)
class Driver:
    """It does one thing after the other, each as long as the store and its processor take."""

    desk: Desk
    devices: list[Device]
    free_at: float = 0.0
    processor: float = 0.0


class Simulation:
    def __init__(self, study: Study, trials: int) -> None:
        self.study, self.trials = study, trials
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        self.random = random.Random(0)
        self.events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.number = itertools.count()
        self.left: dict[str, float] = {}  # seconds that an interrupted training still takes
        self.busy: list[tuple[float, float]] = []
        self.down: list[tuple[float, float]] = []
        self.needed = 0.0
        self.preempted = self.renewals = 0
        self.drivers: list[Driver] = []
        self.devices: list[Device] = []

    def run(self) -> None:
        with virtual(self.clock):
            self._begin()
            while not all(driver.desk.is_done for driver in self.drivers):
                self.clock.now, _, act, arguments = heapq.heappop(self.events)
                act(*arguments)
            for driver in self.drivers:
                driver.desk.work.close()

    def _begin(self) -> None:
        count = min(DEVICES, max(DRIVERS, self.trials // 4))  # few trials would leave most devices without any work
        for _ in range(DRIVERS):
            started = time.process_time()
            devices: list[Device] = []
            desk = Desk(Work(self.study, self.store), retries=3, alive=partial(_alive, devices))
            self.drivers.append(Driver(desk, devices, processor=time.process_time() - started))
        for number in range(count):
            driver = self.drivers[number % DRIVERS]
            device = Device(number, driver)
            driver.devices.append(device)
            self.devices.append(device)
            driver.desk.work.evaluations.at_once = count // DRIVERS
            self._later(self.random.expovariate(1 / UP_SECONDS), self._goes_down, device)
        for driver in self.drivers:
            self._later(0.0, self._look, driver)
            self._later(RENEW_SECONDS, self._renew, driver)

    def _later(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self.events, (self.clock.now + seconds, next(self.number), act, arguments))

    def _timed(self, driver: Driver, act: Callable[[], Any]) -> Any:
        """The driver does it when it has done what came before."""
        self.store.waited, started = 0.0, time.process_time()
        found = act()
        taken = time.process_time() - started
        driver.processor += taken
        driver.free_at = max(driver.free_at, self.clock.now) + self.store.waited + taken
        return found

    def _look(self, driver: Driver) -> None:
        """As Tune does: another process, as long as one could begin something."""
        desk = driver.desk
        for device in driver.devices:
            if device.up and not device.process:
                if self._timed(driver, lambda: desk.wanted(1)) <= 0:
                    break
                device.process, device.loaded = f"{device.number}-{next(self.number)}", ()
                desk.workers[device.process] = Worker(since=self.clock.now)
                self._later(START_SECONDS, self._ask, device, device.process)
        self._later(LOOK_SECONDS, self._look, driver)

    def _renew(self, driver: Driver) -> None:
        """As its thread does."""
        driver.desk.work.leases.sign.renew()
        self.renewals += 1
        self._later(RENEW_SECONDS, self._renew, driver)

    def _ask(self, device: Device, process: str) -> None:
        if device.process != process:  # it was ended meanwhile
            return
        driver = device.driver
        order = self._timed(driver, lambda: driver.desk.order(process, device.place))
        waits = driver.free_at - self.clock.now
        if order is None:
            driver.desk.left(process)
            device.process = ""
        elif isinstance(order, float):
            self._later(waits + order, self._ask, device, process)
        else:
            device.task, device.began, device.turn = order, driver.free_at, device.turn + 1
            self._later(waits + self._seconds(order), self._ends, device, device.turn)

    def _seconds(self, task: Task) -> float:
        return self.left.get(task.name) or seconds_of(task)

    def _ends(self, device: Device, turn: int) -> None:
        if device.turn != turn or device.task is None:
            return
        task, device.task = device.task, None
        self.busy.append((device.began, self.clock.now))
        self.needed += seconds_of(task)
        is_loaded = task.trial in device.loaded
        found = left_by(self.store, task, self._seconds(task), is_loaded)
        if isinstance(task, EvaluationPiece) and not is_loaded:
            device.loaded = (*device.loaded[-1:], task.trial)
        desk, seconds = device.driver.desk, self.clock.now - device.began
        self._timed(device.driver, lambda: desk.ended(device.process, seconds, found))
        self._ask(device, device.process)

    def _goes_down(self, device: Device) -> None:
        device.up = False
        process, device.process = device.process, ""
        if device.task is not None:
            self.preempted += 1
            task, device.task = device.task, None
            done = max(0.0, self.clock.now - device.began)
            self.busy.append((device.began, device.began + done))
            if not isinstance(task, EvaluationPiece):  # saved after each epoch
                epoch = seconds_of(task) / task.epochs
                self.left[task.name] = self._seconds(task) - done // epoch * epoch
        if process:
            desk = device.driver.desk
            self._timed(device.driver, lambda: desk.failed(process, TaskFailure("died", "the node is gone")))
        self.down.append((self.clock.now, self.clock.now + DOWN_SECONDS))
        self._later(DOWN_SECONDS, self._comes_up, device)

    def _comes_up(self, device: Device) -> None:
        device.up = True
        self._later(self.random.expovariate(1 / UP_SECONDS), self._goes_down, device)

    def result(self) -> dict[str, float]:
        makespan = max(end for _, end in self.busy)
        devices, until = len(self.devices), 0.9 * makespan
        available = devices * until - _within(self.down, until)
        return {
            "trials": self.trials,
            "devices": devices,
            "makespan_hours": makespan / 3600,
            "ideal_hours": self.needed / devices / (UP_SECONDS / (UP_SECONDS + DOWN_SECONDS)) / 3600,
            "preempted": self.preempted,
            "use": _within(self.busy, until) / available,
            "driver_milliseconds": 1000 * sum(driver.processor for driver in self.drivers) / self.trials,
            "operations": (sum(self.store.asked.values()) - self.renewals) / self.trials,
            "renewals": self.renewals / self.trials,
            "checkpoint_operations": sum(self.store.checkpoints.values()) / self.trials,
        }


def _alive(devices: list[Device]) -> set[str]:
    return {device.place.node for device in devices if device.up}


def _within(spans: list[tuple[float, float]], until: float) -> float:
    return sum(min(end, until) - start for start, end in spans if start < until)


def study_of(trials: int, folder: Path) -> Study:
    """A hundred seeds of as many columns as it takes, all as long as in the paper, each attacked three times."""
    columns = max(1, trials // 100)
    methods = {
        f"sovr-{i}": {"method": "sovr", "hyperparameters": {"M": i % 100, "lam": 0.1 + i / 10_000}}
        for i in range(columns)
    }
    path = folder / "scale.yaml"
    content = {
        "name": "scale",
        "title": "Scale",
        "dataset": "cifar10",
        "model": "preact_resnet18",
        "seeds": list(range(trials // columns)),
        "methods": methods,
        "evaluation": {"attacks": ["clean", "pgd-20", "autoattack"], "checkpoints": ["headline"]},
    }
    path.write_text(yaml.safe_dump(content))
    return Study.load(path)
