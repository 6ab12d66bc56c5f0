"""A sweep without Ray, as RunOptions(local=True) does it: in this process, or with a forked worker for each piece."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sweep.engine import driver
from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.evaluation import progress
from sweep.store.base import Store
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.studies.model import Study
from sweep.work import trainable
from sweep.work.pieces import Metrics, Setting
from sweep.work.summary import Summary

_compute, _run_piece = driver.compute, trainable.trainable


def run(study: Path, store: str | Path, data: Path, *, forked: bool = False) -> None:
    """A whole run in this process; SystemExit 1 when something is left."""
    use_this_process(forked=forked)
    options = RunOptions(data_dir=data, out=None, progress=False, loggers=(), yes=True)
    summary = run_study(Study.load(study), open_store(store), options)
    if not summary.complete:
        print(summary.text(), file=sys.stderr)
        raise SystemExit(1)


def use_this_process(*, forked: bool = False) -> None:
    """Let every further run of this process compute without Ray; with `forked` each piece in a worker of its own."""
    driver.compute = compute_here
    trainable.trainable = _in_worker if forked else _run_piece


def compute_here(study: Study, store: Store, options: RunOptions, *more: Any) -> Summary:
    """In place of the driver's `compute`."""
    torch.set_num_threads(1)
    return _compute(study, store, replace(options, local=True), *more)


def spoil_results() -> None:
    """From now on the first verdict of every evaluation is turned round: a fault that the campaign must find."""
    whole = progress.EvaluationProgress.record

    def wrong(self: progress.EvaluationProgress) -> tuple[EvaluationRecord, bytes | None]:
        self.alive[0] = not self.alive[0]
        return whole(self)

    progress.EvaluationProgress.record = wrong  # type: ignore[method-assign]


def _in_worker(config: dict[str, object], setting: Setting, report: Callable[[Metrics], None]) -> Metrics:
    """Do a piece in a forked process. What it reports on the way stays there."""
    source, target = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer: Metrics | Exception = _run_piece(config, setting)
        except Exception as fault:
            answer = fault
        with os.fdopen(target, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(target)
    with os.fdopen(source, "rb") as pipe:
        content = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise RuntimeError("the process died" if code == -signal.SIGKILL else f"the process ended with {code}")
    result = pickle.loads(content)
    if isinstance(result, Exception):
        raise result
    return dict(result)
