"""What runs in a worker process: one task of a sweep after another, as the driver orders them.

A task finds what it depends on (seeds, threads, dtype, environment) set anew, whatever the process did before.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from ray import tune
from ray.tune.result import RESULT_DUPLICATE
from ray.tune.trainable.function_trainable import FunctionTrainable

from sweep.cluster.failures import failure_of
from sweep.cluster.place import Lookout, gpu_fault
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.opening import open_store
from sweep.store.patient import PatientStore
from sweep.work.tasks import Setting, Task, Workplace
from trainers import pulse, registry

LOG_LINES = 40

Report = Callable[[dict[str, Any]], None]
Order = Task | float | None  # what to do; or how many seconds to wait before asking again; or that nothing is left


class NoGpu(RuntimeError):
    """A process that was promised a GPU would train on the CPU."""


class Process(FunctionTrainable):
    """Tune's trial: not one task but a process on a device, which asks for tasks until there are none.

    So a task is taken by a driver when a device is ready for it, never before; and what waits for a device, for an
    autoscaler to see, is no more than a process.
    """

    _name = "worker"
    _order: Order = None

    def assign(self, order: Order) -> None:
        """Called by the driver between the report that asks and the call that lets the process go on."""
        self._order = order

    def _trainable_func(self, config: dict[str, Any]) -> None:
        def ask(report: dict[str, Any]) -> Order:
            self._order = None
            tune.report(report)
            return self._order

        serve(config["setting"], ask, tune.report)
        tune.report({RESULT_DUPLICATE: True})


def serve(setting: Setting, ask: Callable[[dict[str, Any]], Order], report: Report) -> None:
    """Until nothing is left, or a task fails: what a failure leaves in a process is nobody's to find."""
    _load_plugins(setting)
    store, lookout = open_store(setting.store), Lookout(setting)
    ended: dict[str, Any] = {}

    def note(values: dict[str, Any]) -> None:
        """The end of a task goes with the question for the next."""
        if "state" in values:
            ended.update(values)
        else:
            report(values)

    while True:
        order = ask({**ended, "asks": True, "place": lookout.place(store)})
        ended.clear()
        if order is None:
            return
        if isinstance(order, float):
            time.sleep(order)
            continue
        try:
            run(order, setting, note)
        except Exception as error:
            report({"failure": failure_of(error)})
            return


def run(task: Task, setting: Setting, report: Report) -> None:
    store = PatientStore(open_store(setting.store))
    folder = layout.trial_folder(task.trial)
    with _fresh_process(setting.cpus), _scratch(store, folder, task.needs_files) as place, _log(store, task, place):
        _load_plugins(setting)
        if setting.gpus and not torch.cuda.is_available():
            raise NoGpu(gpu_fault())
        started = time.time()
        with pulse.heard_by(_Signs(report, setting.sign_seconds).hear):
            workplace = Workplace(setting, store, place, report)
            state = task.run(workplace)
        report({"state": state, "started": started, "ended": time.time(), "found": workplace.found})


class _Signs:
    """Of life, now and then: how many steps are done."""

    def __init__(self, report: Report, seconds: float) -> None:
        self.report, self.seconds = report, seconds
        self._steps, self._next = 0, time.monotonic() + seconds

    def hear(self) -> None:
        self._steps += 1
        if time.monotonic() > self._next:
            self.report({"steps": self._steps})
            self._next = time.monotonic() + self.seconds


def last_lines(store: Store, trial: str) -> list[str]:
    """Of a trial's log."""
    try:
        text = store.read(layout.trial_file(trial, layout.LOG)).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-LOG_LINES:]


def _load_plugins(setting: Setting) -> None:
    for name, source in setting.plugins.items():
        registry.load_source(name, source)


@contextlib.contextmanager
def _fresh_process(cpus: float) -> Iterator[None]:
    """As if the process had just started, whatever the trial before it did."""
    environment = dict(os.environ)
    torch.set_num_threads(max(1, int(cpus)))
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.manual_seed(0)
    numpy.random.seed(0)
    random.seed(0)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@contextlib.contextmanager
def _scratch(store: Store, path: str, with_files: bool) -> Iterator[Path]:
    """Where files are written: in a folder store their own place, else a temporary folder."""
    local = store.local(path)
    if local is not None:
        local.mkdir(parents=True, exist_ok=True)
        yield local
        return
    with tempfile.TemporaryDirectory(prefix="robustsweep-") as temporary:
        if with_files:
            store.fetch_folder(path, Path(temporary))
        yield Path(temporary)


@contextlib.contextmanager
def _log(store: Store, task: Task, place: Path) -> Iterator[None]:
    """Everything that is printed goes to the trial's log, and a failure's traceback with it."""
    file = place / layout.LOG
    if file.is_symlink():  # of a store from elsewhere: what it points at is not ours to write to
        file.unlink()
    with file.open("a", encoding="utf-8", buffering=1) as log:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        log.write(f"{now} {task.stage} {task.label} on {socket.gethostname()} with {cores} cores\n")
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            try:
                yield
            except Exception:
                traceback.print_exc(file=log)
                log.flush()
                if store.local("") is None:
                    path = layout.trial_file(task.trial, layout.LOG)
                    before = store.read(path) if not task.needs_files and store.exists(path) else b""
                    store.write(path, before + file.read_bytes())
                raise
