"""One study from its store's present state to complete: search, train, evaluate, report, under one Ray Tune run."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.errors import UserError
from sweep.evaluation.asked import diagnoses_of, evaluations_of
from sweep.listing import size
from sweep.store.base import Store
from sweep.studies.model import Study
from sweep.trials import cells as plan
from sweep.trials.disk import make_folder, planned_bytes
from sweep.trials.identity import NUMERICS_VERSION
from sweep.work.display import Display, Summary
from sweep.work.stopping import StopSignals

if TYPE_CHECKING:
    from sweep.cluster.devices import Resources
    from sweep.cluster.tune import Watch

TABLE_SECONDS = 120.0
ASK_BYTES = 2 * 10**9


def run_study(
    study: Study,
    store: Store,
    *,
    address: str | None = None,
    data_dir: str | Path = "data",
    yes: bool = False,
    progress: bool = True,
    budget: str | None = None,
    retry_failed: bool = False,
    out: Path | None = Path("reports"),
    loggers: Sequence[str] = ("tensorboard",),
    verbose: bool = False,
) -> Summary:
    """Runs what the store has not; raises UserError for what cannot work and KeyboardInterrupt after a clean stop.

    A study on plug-ins must have been loaded in this process: workers get their text from here.
    """
    limit = budget_hours(budget)
    command = _command(study)
    if out is not None:
        make_folder(out)  # the tables come last: where they cannot be written, that is said before days of work
    _delete_broken(store)
    if is_complete(study, store, retry_failed):
        cells = plan.expand(study, plan.chosen_values(study, store))
        states = plan.states(cells, store)
        failed = [
            {"title": f"{cell.label} seed {cell.seed}", "trial": cell.trial, "stored": True}
            for cell, state in zip(cells, states, strict=True)
            if state == "failed"
        ]
        store.write_manifest(plan.manifest(study, cells))
        summary = Summary(study.name, complete=not failed, all_there=True, failed=failed, store=store.uri)
    else:
        if not yes:
            _confirm(study, store)
        with StopSignals() as stop:
            summary = _compute(
                study,
                store,
                stop,
                address=address,
                data_dir=Path(data_dir).absolute(),
                progress=progress,
                limit=limit,
                retry_failed=retry_failed,
                command=command,
                out=out,
                loggers=loggers,
                verbose=verbose,
            )
    summary.command = command
    if out is not None:
        summary.written = write_tables(store, out, figures=True)
    if progress:
        print(summary.text(), file=sys.stderr, flush=True)
    if summary.interrupted:
        raise KeyboardInterrupt
    return summary


def _delete_broken(store: Store) -> None:
    """Results that cannot be trusted: from here on they are missing, and computed as all that is missing."""
    for path in store.broken_results():
        print(f"broken record {path}: deleted, to be computed again", file=sys.stderr, flush=True)
        store.delete(path)


def _confirm(study: Study, store: Store) -> None:
    """Ask before days of work, where there is somebody to ask; what fits a laptop just starts."""
    planned = planned_bytes(study, store, 1)
    if planned < ASK_BYTES or not sys.stdin.isatty():
        return
    print(
        f"{study.name}: {len(study.methods)} methods x {len(study.seeds)} seeds of {study.train.epochs} epochs, "
        f"{size(planned)} of checkpoints in {store.uri}.\n"
        f"What it costs: python -m sweep.plan --study {study.name}. To skip this question: --yes",
        file=sys.stderr,
    )
    if input("Start? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UserError("not started")


def is_complete(study: Study, store: Store, retry_failed: bool = False) -> bool:
    """Whether nothing is left to compute, found without starting Ray."""
    chosen = plan.chosen_values(study, store)
    if any(label not in chosen for label in study.searches()):
        return False
    cells = plan.expand(study, chosen)
    evaluated, diagnosed = set(store.evaluation_paths()), set(store.list("diagnostics"))
    for cell, state in zip(cells, plan.states(cells, store), strict=True):
        if state in ("missing", "broken", "waiting") or (state == "failed" and retry_failed):
            return False
        if state == "done" and any(one.record not in evaluated for one in evaluations_of(study, cell)):
            return False
        if state == "done" and not diagnosed.issuperset(diagnoses_of(study, cell).values()):
            return False
    return True


def _compute(
    study: Study,
    store: Store,
    stop: StopSignals,
    *,
    address: str | None,
    data_dir: Path,
    progress: bool,
    limit: float | None,
    retry_failed: bool,
    command: str,
    out: Path | None,
    loggers: Sequence[str],
    verbose: bool,
) -> Summary:
    started = time.monotonic()
    display = Display(study.title, progress)
    try:
        from sweep.cluster.session import connected
        from sweep.search.stored import settings_of
        from sweep.work.loggers import callbacks

        curves = callbacks(loggers, study, store)
        for label in study.searches():
            settings_of(study, label)  # refuses what cannot be searched before anything starts
        display.say(f"{study.name}: starting Ray")
        with connected(address, verbose=verbose), tempfile.TemporaryDirectory(prefix="robustsweep-tune-") as scratch:
            stop.listen()  # Ray has put handlers of its own in their place
            from sweep.cluster import devices, preflight
            from sweep.cluster.tune import Queue, Watch, fit
            from sweep.work.work import Work

            resources = devices.choose(study)
            preflight.check(study, store, resources, data_dir)
            if stop.asked():
                raise KeyboardInterrupt
            common = _of_every_job(store, data_dir, resources, command)
            watch: Watch

            def may_start() -> bool:
                return limit is None or watch.busy_seconds() / 3600 < limit

            work = Work(study, store, common=common, retry_failed=retry_failed, may_start=may_start)
            queue = Queue(work, resources, stop.asked)
            tables = _Tables(store, out, work, display.say)

            def step() -> None:
                display.update(work)
                tables.update()

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
    finally:
        display.close()


def _of_every_job(store: Store, data_dir: Path, resources: Resources, command: str) -> dict[str, Any]:
    """What each piece of work is told, wherever it runs."""
    from trainers import registry

    return {
        "store": store.uri,
        "data_dir": str(data_dir),
        "cpus": resources.cpus,
        "plugins": registry.sources(),
        "commit": _commit(),
        "numerics": NUMERICS_VERSION,
        "command": command,
    }


def _device_use(watch: Watch, slots: int) -> float | None:
    """The share of the time between the first start and the last end in which devices worked."""
    first = min((start for start, _ in watch.spans), default=0.0)
    last = max((end for _, end in watch.spans), default=0.0)
    available = slots * (last - first)
    return min(1.0, watch.busy_seconds() / available) if available > 0 else None


class _Tables:
    """Rewrites the tables now and then as work is done, so that a long sweep can be read, holes included, meanwhile."""

    def __init__(self, store: Store, out: Path | None, work: Any, say: Callable[[str], None]) -> None:
        self.store, self.out, self.work, self.say = store, out, work, say
        self._next, self._seen = time.monotonic() + TABLE_SECONDS, 0

    def update(self) -> None:
        done = sum(self.work.done.values()) + len(self.work.failed)
        if self.out is None or done == self._seen or time.monotonic() < self._next:
            return
        started = time.monotonic()
        try:
            write_tables(self.store, self.out, figures=False)
        except Exception as fault:  # whatever is wrong with a table is no reason to end days of training
            self.say(f"tables could not be written ({fault}); the sweep goes on")
        # The work waits meanwhile: of a large store, whose tables take long, they are written less often.
        taken = time.monotonic() - started
        self._next, self._seen = time.monotonic() + max(TABLE_SECONDS, 30 * taken), done


def write_tables(store: Store, out: Path, *, figures: bool) -> list[Path]:
    """All studies of the store: a paper's table has rows of several."""
    from reports import write_reports

    return list(write_reports(store.uri, None, out, figures=figures, keep_current=True))


def budget_hours(text: str | None) -> float | None:
    """'500h', '30min', '1.5h' or a plain number of hours."""
    if text is None:
        return None
    for unit, hours in (("min", 1 / 60), ("h", 1.0), ("d", 24.0), ("", 1.0)):
        number = text.strip().removesuffix(unit) if unit else text.strip()
        if text.strip().endswith(unit):
            try:
                value = float(number) * hours
            except ValueError:
                continue
            if value >= 0:
                return value
    raise UserError(f"--budget {text}: must be device-hours such as 500h, or 30min, or 2d")


def _command(study: Study) -> str:
    """How this run was started, for records and messages: the words that a user can type again."""
    program, words = Path(sys.argv[0]), sys.argv[1:]
    if program.name != "sweep" and program.parent.name != "sweep":  # called from Python
        words = ["--study", study.name]
    return shlex.join(["python", "-m", "sweep.run", *(words[1:] if words[:1] == ["run"] else words)])


def _commit() -> str | None:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
