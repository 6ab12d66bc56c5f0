"""Each kind of file as the project itself reads it: what comes back must be what was written, or a fault that is told.

Files that no result comes from (leases, logs, notes of progress) may read as something else, but never as a crash, nor
as a lease that nobody can ever take.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from reports.store.cache import RowCache
from reports.store.freshness import CACHE, current_files
from sweep.errors import UserError
from sweep.evaluation.checkpoints import _checked_weights
from sweep.evaluation.proof import counterexamples_of
from sweep.evaluation.untrusted import Contradiction
from sweep.search.stored import open_search
from sweep.store import layout, lease_upkeep, leases
from sweep.store.base import Store
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.kinds import RECORD_TYPES
from sweep.store.records.search import SearchRecord
from sweep.store.records.trial import TrialRecord
from sweep.store.usage import usages
from sweep.studies.model import Study
from sweep.trials.standing import _how_far, _Moment
from sweep.work.worker import last_lines
from tests.chaos.study import Reference
from trainers.loop.checkpoint import load_resume

Reader = Callable[[Store, str, Store], Any]
DECISION = "decisions/*/*.json"
VALUES = 64  # of an image of the study
LONGEST_LEASE_SECONDS = 86_400.0
UNCHECKED = ("lease", "log", "progress")


def reader_of(kind: str, reference: Reference) -> Reader:
    """Takes the store, a path in it, and a store in which everything is whole."""
    if kind == "journal":
        study = Study.load(reference.study)
        return lambda store, path, whole: _read_journal(store, path, whole, study)
    return _READERS.get(kind, _read_record)


def _read_record(store: Store, path: str, whole: Store) -> Any:
    return store.record(RECORD_TYPES[layout.kind_at(path) or ""], path)


def _read_arrays(store: Store, path: str, whole: Store) -> Any:
    record = whole.record(DiagnosticsRecord, f"{path.removesuffix('.npz')}.json")
    broken = store.arrays_fault(record)
    if broken is not None:
        raise broken
    return store.read(path)


def _read_counterexamples(store: Store, path: str, whole: Store) -> Any:
    record = whole.record(EvaluationRecord, layout.evaluation_of_counterexamples(path))
    try:
        counterexamples_of(store, record, VALUES)
    except Contradiction as fault:
        raise UserError(str(fault)) from None
    return store.read(path)


def _read_weights(store: Store, path: str, whole: Store) -> Any:
    trial, name = layout.in_trial(path)
    record = whole.record(TrialRecord, layout.trial_record(trial))
    _checked_weights(store, path, record.checkpoints[name.removesuffix(layout.WEIGHTS)].sha256)
    return store.read(path)


def _read_resume(store: Store, path: str, whole: Store) -> Any:
    load_resume(store.local(path) or Path())
    return store.read(path)


def _read_journal(store: Store, path: str, whole: Store, study: Study) -> Any:
    """What a search that was stopped after its first generation proposes next: it is made from the record alone."""
    label = next(iter(study.searches()))
    record = whole.record(SearchRecord, f"{path.rpartition('/')[0]}/{layout.RECORD}")
    first = tuple(one for one in record.candidates if one.generation == 0)
    store.write_record(record.model_copy(update={"candidates": first, "status": "running", "chosen": None}))
    search = open_search(study, label, store)
    search.advance()
    return [(one.generation, one.hyperparameters) for one in search.candidates]


def _read_usage(store: Store, path: str, whole: Store) -> Any:
    def refuse(fault: Exception) -> None:
        raise fault

    return usages(store, path.split("/")[1], refuse)


def _read_progress(store: Store, path: str, whole: Store) -> Any:
    trial, _ = layout.in_trial(path)
    return [_how_far(note) for note in _Moment(store, {})._progress([trial]).values()]


def _read_log(store: Store, path: str, whole: Store) -> Any:
    return last_lines(store, layout.in_trial(path)[0])


def _read_lease(store: Store, path: str, whole: Store) -> Any:
    """Of a process that died: free at once, or when it has not changed for as long as a lease may last."""
    name = lease_upkeep.lease_name(path)
    lease_upkeep.held(store)
    lease_upkeep.abandoned(store, 0.0)
    clock = leases.elapsed
    try:
        lease = leases.take(store, name)
        if lease is None:
            leases.elapsed = lambda: clock() + LONGEST_LEASE_SECONDS + 1
            lease = leases.take(store, name)
    finally:
        leases.elapsed = clock
    if lease is None:
        raise RuntimeError("nobody can ever take this lease")
    lease.release()
    return None


def _read_rows(store: Store, path: str, whole: Store) -> Any:
    """The cache of a report: rows as they were, or none, and then they are read from the records."""
    folder = (store.local(path) or Path()).parent
    stamps, columns = RowCache(folder)._load(whole, Path(path).stem)
    return (stamps, columns) if stamps else None


def _read_note(store: Store, path: str, whole: Store) -> Any:
    """Which figures are those of the records: as noted, or they are drawn again."""
    out = (store.local(path) or Path()).parents[1]
    return current_files(out, "source") or None


_READERS: dict[str, Reader] = {
    "arrays": _read_arrays,
    "counterexamples": _read_counterexamples,
    "weights": _read_weights,
    "resume": _read_resume,
    "usage": _read_usage,
    "lease": _read_lease,
    "progress": _read_progress,
    "log": _read_log,
    "rows": _read_rows,
    "note": _read_note,
}
ROWS, NOTE = f"out/{CACHE}/*.parquet", "out/plots/made_from.txt"
