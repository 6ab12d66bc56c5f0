"""The undisturbed run that all others are compared with; it also warms the process that they are forked from."""

from __future__ import annotations

import time
from pathlib import Path

from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.search import CandidateRecord
from tests.chaos import loop
from tests.chaos.children import in_child
from tests.chaos.primitives import Countdown
from tests.chaos.study import Reference, outcome, tables, write_study


def make_reference(folder: Path) -> Reference:
    """In this process once, so that what it forks finds everything loaded; then in a child, counted and timed."""
    folder.mkdir(parents=True, exist_ok=True)
    study = write_study(folder)
    loop.run(study, folder / "store", folder)
    counter = Countdown(folder / "again")

    def counted() -> None:
        counter.install()
        loop.run(study, folder / "again", folder)

    started = time.monotonic()
    ended = in_child(counted)
    seconds = time.monotonic() - started
    found, made = outcome(folder / "store"), tables(folder / "store", folder / "tables")
    if ended.code != 0 or outcome(folder / "again") != found:
        raise RuntimeError(f"two undisturbed runs differ: {ended.output}")
    _can_differ(folder / "store")
    if tables(folder / "again", folder / "tables-again") != made:
        raise RuntimeError("the tables of two undisturbed runs differ")
    return Reference(folder, study, found, made, counter.count, seconds)


def _can_differ(folder: Path) -> None:
    """A study in which every image falls, or no candidate is pruned, would be equal after much that is wrong."""
    store = open_store(folder)
    attacked = store.records(EvaluationRecord, store.record_paths(EvaluationRecord))
    shares = {record.accuracy for record in attacked if record.attack["kind"] == "pgd"}
    if not store.record_paths(CandidateRecord) or len(shares - {0.0, 1.0}) < 2:
        raise RuntimeError(f"the study shows too little: accuracies {shares} under PGD, or no pruned candidate")
