"""What runs in a worker process: one task of a sweep at a time.

Tune reuses the processes, so each task finds what it depends on (seeds, threads, dtype, environment) set anew.
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

from sweep.store import layout
from sweep.store.base import Store
from sweep.store.opening import open_store
from sweep.work.tasks import Setting, Task, Workplace
from trainers import registry

LOG_LINES = 40

Report = Callable[[dict[str, Any]], None]


def tune_trainable(config: dict[str, Any]) -> None:
    """The function that Ray Tune runs for every task."""
    run(config["task"], config["setting"], tune.report)


def run(task: Task, setting: Setting, report: Report) -> None:
    store = open_store(setting.store)
    folder = layout.trial_folder(task.trial)
    with _fresh_process(setting.cpus), _scratch(store, folder) as place, _log(store, task, place):
        for name, source in setting.plugins.items():
            registry.load_source(name, source)
        started = time.time()
        try:
            state = task.run(Workplace(setting, store, place, report))
        except (ValueError, TypeError, AttributeError) as error:
            if _is_of_the_loss(error):
                report({"repeats": True})
            raise
        report({"state": state, "started": started, "ended": time.time()})


def last_lines(store: Store, trial: str) -> list[str]:
    """Of a trial's log."""
    try:
        text = store.read(layout.trial_file(trial, layout.LOG)).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-LOG_LINES:]


def _is_of_the_loss(error: Exception) -> bool:
    """Raised in a training step: such a fault of the code comes again with every retry, unlike one of a disk."""
    return any(frame.f_code.co_name == "training_step" for frame, _ in traceback.walk_tb(error.__traceback__))


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
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@contextlib.contextmanager
def _scratch(store: Store, path: str) -> Iterator[Path]:
    """Where files are written: in a folder store their own place, else a temporary folder with what is stored."""
    local = store.local(path)
    if local is not None:
        local.mkdir(parents=True, exist_ok=True)
        yield local
        return
    with tempfile.TemporaryDirectory(prefix="robustsweep-") as temporary:
        store.fetch_folder(path, Path(temporary))
        yield Path(temporary)


@contextlib.contextmanager
def _log(store: Store, task: Task, place: Path) -> Iterator[None]:
    """Everything that is printed goes to the trial's log, and a failure's traceback with it."""
    file = place / layout.LOG
    with file.open("a", encoding="utf-8", buffering=1) as log:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        log.write(f"{now} {task.stage} {task.label} on {socket.gethostname()}\n")
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            try:
                yield
            except Exception:
                traceback.print_exc(file=log)
                log.flush()
                if store.local("") is None:
                    store.push_file(file, layout.trial_file(task.trial, layout.LOG))
                raise
