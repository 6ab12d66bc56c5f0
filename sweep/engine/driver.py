"""The computing part of a run, until its last trial ends: by Ray Tune, or piece by piece in this process."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweep.engine.display import Display
from sweep.engine.options import RunOptions
from sweep.engine.stopping import Stop
from sweep.engine.trial_table import recorded, table_of, trial_table
from sweep.search.stored import settings_of
from sweep.store.base import Store
from sweep.store.lease_upkeep import give_back
from sweep.store.patient import PatientStore
from sweep.store.usage import Budget
from sweep.studies.model import Study
from sweep.trials.cost import budget_hours
from sweep.trials.provenance import commit
from sweep.work.pieces import Setting
from sweep.work.queue import Queue
from sweep.work.summary import Summary
from trainers.plugins import registry

SIGN_SECONDS = 20.0
STOP_SECONDS = 1.0  # interval at which a piece in this process looks for a stop
OnProgress = Callable[[int, Callable[[str], None]], None]  # gets the number of finished pieces, and a print function


def compute(study: Study, store: Store, options: RunOptions, command: str, on_progress: OnProgress) -> Summary:
    """Compute everything that the store lacks."""
    display = Display(study.title, options.progress)
    run = _compute_here if options.local else _compute_by_ray
    try:
        with Stop(options.go_on or command) as stop:
            stop.last_acts.append(display.close)
            try:
                summary = run(study, store, options, command, on_progress, display, stop)
            except Exception:
                if stop.asked():  # Ray's processes got the signal as well, and calls to them fail
                    raise stop.fault() from None
                raise
            if stop.is_lost:
                raise stop.fault()
            return summary
    finally:
        display.close()


def _compute_by_ray(
    study: Study,
    store: Store,
    options: RunOptions,
    command: str,
    on_progress: OnProgress,
    display: Display,
    stop: Stop,
) -> Summary:
    from sweep.cluster import compat, preflight, resources
    from sweep.cluster.liveness import Liveness
    from sweep.cluster.session import connected
    from sweep.engine.gauges import Gauges
    from sweep.engine.loggers import callbacks
    from sweep.engine.searcher import StudySearcher, Watch, living_nodes
    from sweep.engine.supervisor import NO_NODE_SECONDS, Supervisor
    from sweep.engine.tuner import fit

    started, limit = time.monotonic(), budget_hours(options.budget)
    patient = PatientStore(store, display.say, stop.asked)
    curves = callbacks(options.loggers, study, store)
    for label in study.searches():
        settings_of(study, label)  # raises for an unusable search before anything starts
    display.say(f"{study.name}: starting Ray (usually 10 to 30 s)")
    session = connected(options.address, verbose=options.verbose, dashboard=options.dashboard, stopping=stop.asked)
    with session as dashboard, tempfile.TemporaryDirectory(prefix="robustsweep-tune-") as scratch:
        stop.listen()  # Ray's core aborts on SIGTERM
        stop.last_acts.append(lambda: shutil.rmtree(scratch, ignore_errors=True))
        stop.end_if_asked()
        if dashboard:
            display.say(dashboard)
        scales = options.address is not None and compat.scales()
        held = resources.choose(study, scales=scales)
        data_dir = Path(options.data_dir).absolute()
        checked = preflight.check(study, store, held, data_dir, seconds=options.wait_for_nodes, scales=scales)
        for line in checked.notes:
            display.say(line)
        stop.end_if_asked()
        hang_seconds = study.resources.hang_minutes * 60
        setting = Setting(
            store.uri,
            str(data_dir),
            study.name,
            registry.sources(),
            commit(),
            command,
            options.retry_failed,
            versions=checked.versions,
            dataset=study.dataset,
            wrappers=tuple(preflight.wrappers_of(study)),
            data=checked.data,
            sign_seconds=min(SIGN_SECONDS, hang_seconds / 3),
        )
        watch: Watch
        budget = Budget(patient, study.name, limit, lambda: watch.device_seconds())
        queue = Queue(study, patient, retry_failed=options.retry_failed, command=command, may_start=budget.may_start)
        patience = max(NO_NODE_SECONDS, options.wait_for_nodes if scales else 0.0)
        supervisor = Supervisor(queue, study.resources.retries, living_nodes(), patience)
        by_piece = resources.resources_by_piece(study, held)
        searcher = StudySearcher(supervisor, held, by_piece, stopping=stop.asked, scales=scales)

        def step() -> None:
            searcher.guarded(budget.update)
            searcher.guarded(supervisor.end_without_nodes)
            display.update(queue, supervisor.nodes.bad())
            on_progress(sum(queue.done.values()) + len(queue.failed), display.say)

        watch = Watch(searcher, hang_seconds, step)
        stop.last_acts.insert(0, queue.close)
        try:
            with Liveness(held, stop.lost, patience, searcher.needs_nodes if scales else lambda: True):
                results = fit(searcher, setting, watch, [Gauges(queue), *curves], Path(scratch))
        finally:
            with contextlib.suppress(OSError):
                budget.write()
                give_back(store, queue.owners)  # leases of trials that were stopped with the sweep
            queue.close()
        summary = _summary(queue, budget, limit, time.monotonic() - started, watch.device_seconds())
        summary.device_use = watch.device_use(resources.slots(held))
        summary.bad_nodes = supervisor.nodes.bad()
        summary.trials = trial_table(results.get_dataframe())
        return summary


def _compute_here(
    study: Study,
    store: Store,
    options: RunOptions,
    command: str,
    on_progress: OnProgress,
    display: Display,
    stop: Stop,
) -> Summary:
    """Run one piece after the other in this process, for debuggers, notebooks and tiny studies."""
    from sweep.engine.local import run_here
    from sweep.work.trainable import trainable

    started, limit = time.monotonic(), budget_hours(options.budget)
    patient = PatientStore(store, display.say, stop.asked)
    seconds, rows = 0.0, list[dict[str, Any]]()
    run = recorded(trainable, rows)
    budget = Budget(patient, study.name, limit, lambda: seconds)
    queue = Queue(study, patient, retry_failed=options.retry_failed, command=command, may_start=budget.may_start)
    setting = Setting(
        store.uri,
        str(Path(options.data_dir).absolute()),
        study.name,
        registry.sources(),
        commit(),
        command,
        options.retry_failed,
        dataset=study.dataset,
        sign_seconds=STOP_SECONDS,
    )
    stop.last_acts.insert(0, queue.close)
    try:
        for piece_seconds in run_here(queue, setting, study.resources.retries, stop.asked, run):
            seconds += piece_seconds
            budget.update()
            display.update(queue)
            on_progress(sum(queue.done.values()) + len(queue.failed), display.say)
    finally:
        with contextlib.suppress(OSError):
            budget.write()
        queue.close()
    summary = _summary(queue, budget, limit, time.monotonic() - started, seconds)
    summary.trials = table_of(rows)
    return summary


def _summary(queue: Queue, budget: Budget, limit: float | None, seconds: float, device_seconds: float) -> Summary:
    return Summary(
        queue.study.name,
        complete=queue.complete and not queue.failed,
        interrupted=bool(queue.left) and budget.may_start(),
        done=dict(queue.done),
        failed=queue.failed,
        left=queue.left,
        seconds=seconds,
        device_hours=device_seconds / 3600,
        budget_reached=bool(queue.left) and not budget.may_start(),
        budget=None if limit is None else (budget.used, limit),
        store=queue.store.uri,
    )
