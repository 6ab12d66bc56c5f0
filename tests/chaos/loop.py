"""A sweep without Ray: the project's own work loop in one process, each task here or in a forked worker."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from sweep import engine
from sweep.cluster import driver, worker
from sweep.cluster.failures import failure_of
from sweep.evaluation import progress
from sweep.store.base import Store
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.studies.model import Study
from sweep.work.options import RunOptions
from sweep.work.ready import Assigned
from sweep.work.summary import Summary
from sweep.work.tasks import Setting
from sweep.work.work import Work
from trainers import registry

IDLE_SECONDS = 0.02


def run(study: Path, store: str | Path, data: Path, *, forked: bool = False) -> None:
    """A whole run in this process; SystemExit 1 when something is left."""
    use_this_process(forked=forked)
    options = RunOptions(data_dir=data, out=None, progress=False, loggers=(), yes=True)
    summary = engine.run_study(Study.load(study), open_store(store), options)
    if not summary.complete:
        print(summary.text(), file=sys.stderr)
        raise SystemExit(1)


def use_this_process(*, forked: bool = False) -> None:
    """From now on a run of this process computes without Ray; with `forked` each task in a worker of its own."""
    driver.compute = compute_forked if forked else compute_here


def compute_here(
    study: Study,
    store: Store,
    options: RunOptions,
    command: str,
    on_progress: Callable[[int, Callable[[str], None]], None],
) -> Summary:
    """In place of the driver's `compute`."""
    torch.set_num_threads(1)
    return _compute(study, store, options, command, _here)


def compute_forked(
    study: Study,
    store: Store,
    options: RunOptions,
    command: str,
    on_progress: Callable[[int, Callable[[str], None]], None],
) -> Summary:
    torch.set_num_threads(1)
    return _compute(study, store, options, command, _in_worker)


def spoil_results() -> None:
    """From now on the first verdict of every evaluation is turned round: a fault that the campaign must find."""
    whole = progress.EvaluationProgress.record

    def wrong(self: progress.EvaluationProgress) -> EvaluationRecord:
        self.alive[0] = not self.alive[0]
        return whole(self)

    progress.EvaluationProgress.record = wrong  # type: ignore[method-assign]


Run = Callable[[Assigned, Setting], str | None]


def _compute(study: Study, store: Store, options: RunOptions, command: str, run: Run) -> Summary:
    work = Work(study, store, retry_failed=options.retry_failed, command=command)
    setting = Setting(store.uri, str(Path(options.data_dir).absolute()), 1.0, registry.sources(), None, command)
    try:
        while not work.complete:
            assigned = work.next_task()
            if assigned is None:
                time.sleep(IDLE_SECONDS)  # another driver has what is left
                continue
            for _ in range(1 + study.resources.retries):
                fault = run(assigned, setting)
                if fault is None:
                    work.finished(assigned)
                    break
            else:
                work.gave_up(assigned, fault or "", worker.last_lines(store, assigned.task.trial))
    finally:
        work.close()
    return Summary(
        study.name,
        complete=work.complete and not work.failed,
        done=dict(work.done),
        failed=work.failed,
        left=work.left,
        store=store.uri,
    )


def _here(assigned: Assigned, setting: Setting) -> str | None:
    """None, or why it failed."""
    try:
        worker.run(assigned.task, setting, lambda _: None)
    except Exception as fault:
        if failure_of(fault).kind in ("machine", "store"):
            raise  # no trial's fault, and here is no other machine
        return f"{type(fault).__name__}: {fault}"
    return None


def _in_worker(assigned: Assigned, setting: Setting) -> str | None:
    pid = os.fork()
    if pid == 0:
        fault: str | None = "the worker was interrupted"
        try:
            fault = _here(assigned, setting)
        finally:
            os._exit(1 if fault else 0)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return None
    return "the process died" if code == -signal.SIGKILL else "the task failed; its log says why"
