"""The process that drives a sweep: Ray is started, everything is checked, and Tune works until nothing is left."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sweep.cluster import devices, preflight
from sweep.cluster.desk import NO_NODE_SECONDS
from sweep.cluster.liveness import Liveness
from sweep.cluster.place import versions_here
from sweep.cluster.session import connected
from sweep.cluster.tune import Queue, Watch, fit
from sweep.search.stored import settings_of
from sweep.store.base import Store
from sweep.store.patient import PatientStore
from sweep.store.usage import Budget
from sweep.studies.model import Study
from sweep.trials.cost import budget_hours
from sweep.trials.provenance import commit
from sweep.work.display import Display
from sweep.work.loggers import callbacks
from sweep.work.options import RunOptions
from sweep.work.stopping import Stop
from sweep.work.summary import Summary
from sweep.work.tasks import Setting
from sweep.work.work import Work
from trainers import registry

SIGN_SECONDS = 20.0


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
        with Stop(options.go_on or command) as stop:
            stop.last_acts.append(display.close)
            try:
                summary = _compute(study, store, options, command, on_progress, display, stop)
            except Exception:
                if stop.asked():  # Ray's processes got the signal as well, and its calls fail
                    raise stop.fault() from None
                raise
            if stop.is_lost:
                raise stop.fault()
            return summary
    finally:
        display.close()


def _compute(
    study: Study,
    store: Store,
    options: RunOptions,
    command: str,
    on_progress: Callable[[int, Callable[[str], None]], None],
    display: Display,
    stop: Stop,
) -> Summary:
    started, limit = time.monotonic(), budget_hours(options.budget)
    patient = PatientStore(store, display.say, stop.asked)
    curves = callbacks(options.loggers, study, store)
    for label in study.searches():
        settings_of(study, label)  # refuses what cannot be searched before anything starts
    display.say(f"{study.name}: starting Ray (usually 10 to 30 s)")
    session = connected(options.address, verbose=options.verbose, stopping=stop.asked)
    with session, tempfile.TemporaryDirectory(prefix="robustsweep-tune-") as scratch:
        stop.listen()  # Ray's core aborts at a SIGTERM
        stop.last_acts.append(lambda: shutil.rmtree(scratch, ignore_errors=True))
        _end_if_asked(stop)
        scales = options.address is not None and devices.scales()
        resources = devices.choose(study, scales=scales)
        data_dir = Path(options.data_dir).absolute()
        checked = preflight.check(study, store, resources, data_dir, seconds=options.wait_for_nodes, scales=scales)
        for line in checked.notes:
            display.say(line)
        _end_if_asked(stop)
        hang_seconds = study.resources.hang_minutes * 60
        setting = Setting(
            store.uri,
            str(data_dir),
            resources.cpus,
            registry.sources(),
            commit(),
            command,
            gpus=resources.gpus,
            versions=versions_here(),
            dataset=study.dataset,
            wrappers=preflight.wrappers_of(study),
            data=checked.data,
            sign_seconds=min(SIGN_SECONDS, hang_seconds / 3),
        )
        watch: Watch
        budget = Budget(patient, study.name, limit, lambda: watch.busy_seconds() * resources.devices)
        work = Work(study, patient, retry_failed=options.retry_failed, command=command, may_start=budget.may_start)
        patience, retries = max(NO_NODE_SECONDS, options.wait_for_nodes if scales else 0.0), study.resources.retries
        queue = Queue(work, setting, resources, stop.asked, retries=retries, scales=scales, patience=patience)

        def step() -> None:
            queue.guarded(budget.update)
            display.update(work, queue.desk.nodes.bad())
            on_progress(sum(work.done.values()) + len(work.failed), display.say)

        watch = Watch(queue, hang_seconds, step)
        stop.last_acts.insert(0, work.close)
        try:
            with Liveness(resources, stop.lost, patience, queue.needs_nodes if scales else lambda: True):
                fit(queue, watch, resources, scratch=scratch, callbacks=curves)
        finally:
            with contextlib.suppress(OSError):
                budget.write()
            work.close()
        return Summary(
            study.name,
            complete=work.complete and not work.failed,
            interrupted=bool(work.left) and budget.may_start(),
            done=dict(work.done),
            failed=work.failed,
            left=work.left,
            seconds=time.monotonic() - started,
            device_hours=watch.busy_seconds() * resources.devices / 3600,
            device_use=_device_use(watch, devices.slots(resources)),
            budget_reached=bool(work.left) and not budget.may_start(),
            budget=None if limit is None else (budget.used, limit),
            bad_nodes=queue.desk.nodes.bad(),
            store=store.uri,
        )


def _end_if_asked(stop: Stop) -> None:
    if stop.asked():
        raise stop.fault()


def _device_use(watch: Watch, slots: int) -> float | None:
    """The share of the time between the first start and the last end in which devices worked."""
    first = min((start for start, _ in watch.spans), default=0.0)
    last = max((end for _, end in watch.spans), default=0.0)
    available = slots * (last - first)
    return min(1.0, watch.busy_seconds() / available) if available > 0 else None
