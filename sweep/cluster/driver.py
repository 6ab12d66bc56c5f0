"""The process that drives a sweep: Ray is started, everything is checked, and Tune works until nothing is left."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sweep.cluster import devices, preflight
from sweep.cluster.session import connected
from sweep.cluster.tune import Queue, Watch, fit
from sweep.search.stored import settings_of
from sweep.store.base import Store
from sweep.studies.model import Study
from sweep.trials.cost import budget_hours
from sweep.trials.provenance import commit
from sweep.work.display import Display
from sweep.work.loggers import callbacks
from sweep.work.options import RunOptions
from sweep.work.stopping import StopSignals
from sweep.work.summary import Summary
from sweep.work.tasks import Setting
from sweep.work.work import Work
from trainers import registry


def compute(
    study: Study,
    store: Store,
    options: RunOptions,
    command: str,
    on_progress: Callable[[int, Callable[[str], None]], None],
) -> Summary:
    """Everything that the store lacks; `on_progress` hears how many tasks have ended, and how to say something."""
    display = Display(study.title, options.progress)
    try:
        with StopSignals() as stop:
            return _compute(study, store, options, command, on_progress, display, stop)
    except SystemExit:  # Ray's own answer to SIGTERM while it starts, before ours is back in its place
        raise KeyboardInterrupt from None
    finally:
        display.close()


def _compute(
    study: Study,
    store: Store,
    options: RunOptions,
    command: str,
    on_progress: Callable[[int, Callable[[str], None]], None],
    display: Display,
    stop: StopSignals,
) -> Summary:
    started, limit = time.monotonic(), budget_hours(options.budget)
    curves = callbacks(options.loggers, study, store)
    for label in study.searches():
        settings_of(study, label)  # refuses what cannot be searched before anything starts
    display.say(f"{study.name}: starting Ray")
    session = connected(options.address, verbose=options.verbose)
    with session, tempfile.TemporaryDirectory(prefix="robustsweep-tune-") as scratch:
        stop.listen()  # Ray has put handlers of its own in their place
        resources = devices.choose(study)
        data_dir = Path(options.data_dir).absolute()
        preflight.check(study, store, resources, data_dir)
        if stop.asked():
            raise KeyboardInterrupt
        setting = Setting(store.uri, str(data_dir), resources.cpus, registry.sources(), commit(), command)
        watch: Watch

        def may_start() -> bool:
            return limit is None or watch.busy_seconds() / 3600 < limit

        work = Work(study, store, retry_failed=options.retry_failed, command=command, may_start=may_start)
        queue = Queue(work, setting, resources, stop.asked)

        def step() -> None:
            display.update(work)
            on_progress(sum(work.done.values()) + len(work.failed), display.say)

        watch = Watch(queue, study.resources.hang_minutes * 60, step)
        try:
            fit(queue, watch, resources, retries=study.resources.retries, scratch=scratch, callbacks=curves)
        finally:
            work.close()
        return Summary(
            study.name,
            complete=work.complete and not work.failed,
            interrupted=bool(work.left) and may_start(),
            done=dict(work.done),
            failed=work.failed,
            left=work.left,
            seconds=time.monotonic() - started,
            device_hours=watch.busy_seconds() / 3600,
            device_use=_device_use(watch, devices.slots(resources)),
            budget_reached=bool(work.left) and not may_start(),
            store=store.uri,
        )


def _device_use(watch: Watch, slots: int) -> float | None:
    """The share of the time between the first start and the last end in which devices worked."""
    first = min((start for start, _ in watch.spans), default=0.0)
    last = max((end for _, end in watch.spans), default=0.0)
    available = slots * (last - first)
    return min(1.0, watch.busy_seconds() / available) if available > 0 else None
