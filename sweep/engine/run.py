"""Runs of a study: complete what its store lacks, then write its tables."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from reports import write_reports
from reports.store.freshness import CACHE, fingerprint, keep_result, kept_result
from sweep import commands
from sweep.engine.options import RunOptions
from sweep.errors import UserError
from sweep.evaluation.asked import diagnoses_of, evaluations_of, stored_results
from sweep.listing import size
from sweep.store.base import Store
from sweep.store.folder import make_folder
from sweep.store.leftovers import delete_dead, links_left_alone, refuse_links
from sweep.store.manifests import write_manifest
from sweep.store.older import older_note
from sweep.studies.model import Study
from sweep.trials import cells as planned
from sweep.trials.cost import budget_hours
from sweep.trials.disk import planned_bytes
from sweep.trials.replacing import replacements
from sweep.work.damage import set_damaged_weights_aside
from sweep.work.summary import Failure, Summary

TABLE_SECONDS = 120.0
ASK_BYTES = 2 * 10**9
ASK_HOURS = 4.0  # device-hours from which a run asks first


def run_study(study: Study, store: Store, options: RunOptions) -> Summary:
    """Run everything that the store lacks, and write the tables.

    Plug-ins of the study must be loaded in this process, which sends their text to the workers.

    Raises:
        UserError: If the run cannot work.
        KeyboardInterrupt: After a clean stop.
    """
    budget_hours(options.budget)
    command = options.command or _command(study)
    if options.out is not None:
        out = options.out.absolute()  # Tune changes the working directory
        options = replace(options, out=out)
        make_folder(out)  # the tables come last, but an unwritable folder must be reported before days of work
    for line in links_left_alone(store):
        print(line, file=sys.stderr, flush=True)
    _set_broken_aside(store)
    delete_dead(store)
    set_damaged_weights_aside(study, store, planned.stored_cells(study, store))
    replaced = replacements(study, store)
    if replaced:
        print("\n".join(replaced), file=sys.stderr, flush=True)
    note = older_note(store, store.trial_looks().values())
    if note:
        print(note, file=sys.stderr, flush=True)
    if is_complete(study, store, options.retry_failed):
        summary = _all_there(study, store, command)
    else:
        refuse_links(store)
        if not options.yes:
            _confirm(study, store, command, options)
        from reports.papers import load as load_paper  # imports scipy, which is slow

        for paper in study.papers:
            load_paper(paper)  # report a missing paper now
        from sweep.engine.driver import compute  # import Ray only if something remains to be computed

        summary = compute(study, store, options, command, Tables(store, options.out).update)
        delete_dead(store)
    summary.command, summary.replaced = options.go_on or command, replaced
    if options.out is not None and not summary.interrupted:  # a user who stops a sweep should not wait for figures
        summary.written = write_tables(store, options.out, figures=True)
    if options.progress and not summary.interrupted:
        summary.result = _result(store, study, options.out)
    if options.progress:
        print(summary.text(), file=sys.stderr, flush=True)
    if summary.interrupted:
        raise KeyboardInterrupt
    return summary


def _set_broken_aside(store: Store) -> None:
    """Set aside records that cannot be trusted. They then count as missing and are computed again."""
    for fault in list(store.broken_records()):
        with contextlib.suppress(FileNotFoundError):  # another driver was faster
            place = store.set_aside(fault.path)
            print(f"{fault}; it is kept as {place}", file=sys.stderr, flush=True)


def _all_there(study: Study, store: Store, command: str) -> Summary:
    cells = planned.stored_cells(study, store)
    failed = [
        Failure(f"{cell.label} seed {cell.seed}", cell.trial or "", stored=True)
        for cell, state in zip(cells, planned.states(cells, store), strict=True)
        if state == "failed"
    ]
    write_manifest(store, planned.manifest(study, cells, command))
    return Summary(study.name, complete=not failed, all_there=True, failed=failed, store=store.uri)


def _confirm(study: Study, store: Store, command: str, options: RunOptions) -> None:
    """Ask before days of work, if there is a user to ask. Work that fits on a laptop just starts."""
    if not sys.stdin.isatty():
        _refuse_costly(study, store, command, options)
        return
    needed = planned_bytes(study, store, 1)
    if needed < ASK_BYTES:
        return
    print(
        f"{study.name}: {len(study.methods)} methods x {len(study.seeds)} seeds of {study.train.epochs} epochs, "
        f"{size(needed)} of checkpoints in {store.uri}.\n"
        f"What it costs: {commands.plan(command)}\nTo skip this question: --yes",
        file=sys.stderr,
    )
    if input("Start? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UserError("not started")


def _refuse_costly(study: Study, store: Store, command: str, options: RunOptions) -> None:
    """Refuse many device-hours that no user has confirmed. The estimate takes up to half a minute for a large study."""
    limit = budget_hours(options.budget)
    if limit is not None and limit <= ASK_HOURS:
        return
    from sweep.planning.estimate import planned_hours  # imports torch and Ray, which the run needs anyway

    hours = planned_hours(study, store, options.address, ASK_HOURS)
    if hours is None or hours <= ASK_HOURS:
        return
    raise UserError(
        f"{study.name}: by its plan this takes {hours:.3g} device-hours. More than {ASK_HOURS:g} start only after a "
        f"yes, and there is no terminal to ask at: add --yes, or --budget {ASK_HOURS:g}h.\n"
        f"What it costs: {commands.plan(command)}"
    )


def is_complete(study: Study, store: Store, retry_failed: bool = False) -> bool:
    """Return whether nothing remains to be computed."""
    chosen = planned.chosen_values(study, store)
    if any(label not in chosen for label in study.searches()):
        return False
    cells = planned.expand(study, chosen)
    stored = stored_results(store)
    for cell, state in zip(cells, planned.states(cells, store), strict=True):
        if state in ("missing", "broken", "waiting") or (state == "failed" and retry_failed):
            return False
        if state == "done":
            evaluations, diagnoses = evaluations_of(study, cell), diagnoses_of(study, cell)
            if not stored.issuperset([*(one.record for one in evaluations), *(one.record for one in diagnoses)]):
                return False
    return True


class Tables:
    """Tables that are rewritten from time to time, so that a long sweep can be read while it is incomplete."""

    def __init__(self, store: Store, out: Path | None) -> None:
        self.store, self.out = store, out
        self._next, self._seen = time.monotonic() + TABLE_SECONDS, 0

    def update(self, done: int, say: Callable[[str], None]) -> None:
        if self.out is None or done == self._seen or time.monotonic() < self._next:
            return
        started = time.monotonic()
        try:
            write_tables(self.store, self.out, figures=False)
        except Exception as fault:  # a problem with a table must not end days of training
            say(f"tables could not be written ({fault}); the sweep goes on")
        # The driver waits meanwhile, so tables of a large store, which take long, are written less often.
        taken = time.monotonic() - started
        self._next, self._seen = time.monotonic() + max(TABLE_SECONDS, 30 * taken), done


def write_tables(store: Store, out: Path, *, figures: bool) -> list[Path]:
    """Write the tables of all studies in the store, because a paper's table can contain several."""
    return list(write_reports(store.uri, None, out, figures=figures, keep_current=True))


def _result(store: Store, study: Study, out: Path | None) -> str:
    """Return the study's result as text. It is cached beside the tables, because computing it is slow."""
    source = fingerprint(store.uri, None, None) if out is not None else ""
    kept = kept_result(out, study.name, source) if out is not None else None
    if kept is not None:
        return kept
    from reports.terminal import result_text

    try:
        text = result_text(store, study.name, out / CACHE if out is not None else None)
    except UserError as fault:
        return f"no result to show: {fault}"
    if out is not None:
        keep_result(out, study.name, source, text)
    return text


def _command(study: Study) -> str:
    """Return the command that started this run, for records and messages."""
    words = commands.typed("run")
    started = commands.spelled("sweep.run", *(["--study", study.name] if words is None else words))
    return os.environ.get(commands.VARIABLE) or started
