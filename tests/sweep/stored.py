"""Records of a study's cells as a sweep would leave them, for tests of what reads them."""

import hashlib
from typing import Any

import numpy as np

from sweep.store import layout
from sweep.store.base import Store
from sweep.store.numerics import NUMERICS_VERSION
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.search import CandidateEntry, SearchRecord
from sweep.store.records.trial import Checkpoint, TrialRecord
from sweep.store.verdicts import pack
from sweep.studies.model import Study
from sweep.trials.cells import Cell, evaluation_attacks
from sweep.trials.identity import search_id

WEIGHTS = b"w" * 100
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()


def trial(cell: Cell, status: str = "done", *, accuracy: float = 0.5, **changes: Any) -> TrialRecord:
    names = ("last", "best_test", "best_validation") if status == "done" else ()
    facts: dict[str, Any] = {
        "trial": cell.trial,
        "config": cell.config,
        "numerics": NUMERICS_VERSION,
        "status": status,
        "reason": None if status == "done" else f"it {status} here",
        "curve": ({"epoch": 0, "test_pgd_accuracy": accuracy, "seconds": 1.0},),
        "checkpoints": {name: Checkpoint(epoch=0, sha256=SHA256) for name in names},
        "wall_seconds": 1.0,
    }
    return TrialRecord(**{**facts, **changes})


def write_trial(store: Store, cell: Cell, status: str = "done", **changes: Any) -> TrialRecord:
    """The record, and the files that a training leaves beside it."""
    record = trial(cell, status, **changes)
    for name in record.checkpoints:
        store.write(layout.weights(record.trial, name), WEIGHTS)
    store.write(layout.trial_file(record.trial, layout.LOG), b"log")
    store.write_record(record)
    return record


def evaluation(study: Study, cell: Cell, *, attack: int = 0, right: int = 5, **changes: Any) -> EvaluationRecord:
    """Of ten images, the first `right` survive."""
    found = evaluation_attacks(study)[attack]
    facts: dict[str, Any] = {
        "trial": cell.trial,
        "checkpoint": cell.config.selection.headline,
        "attack": found.model_dump(mode="json", exclude_none=True),
        "images": 10,
        "verdicts": pack(np.arange(10) < right),
        "accuracy": right / 10,
    }
    return EvaluationRecord(**{**facts, **changes})


def search(study: Study, label: str, states: list[str], **changes: Any) -> SearchRecord:
    facts: dict[str, Any] = {
        "id": search_id(study, label),
        "label": label,
        "method": label,
        "space": {},
        "objective": "robust",
        "objectives": ("robust",),
        "sampler": "tpe",
        "pruner": "asha",
        "seed": 1000,
        "generation": 0,
        "wanted": 8,
        "candidates": tuple(
            CandidateEntry(index=index, generation=0, hyperparameters={}, trial=f"{index:016x}", state=state)
            for index, state in enumerate(states)
        ),
        "status": "running",
    }
    return SearchRecord(**{**facts, **changes})
