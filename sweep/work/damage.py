"""Detection of weights that no longer match their record."""

from __future__ import annotations

import contextlib
import sys

from sweep.evaluation.asked import diagnoses_of, evaluations_of, stored_results
from sweep.store import layout
from sweep.store.base import ABSENT, Store
from sweep.store.verification import set_trial_aside
from sweep.studies.model import Study
from sweep.trials.cells import Cell, states


def set_damaged_weights_aside(study: Study, store: Store, cells: list[Cell]) -> None:
    """Set aside trials with damaged weights on which something remains to be measured. They are trained again."""
    stored = stored_results(store)
    for cell, state in zip(cells, states(cells, store), strict=True):
        if state != "done" or cell.trial is None:
            continue
        left = {one.checkpoint for one in evaluations_of(study, cell) if one.record not in stored}
        left |= {one.checkpoint for one in diagnoses_of(study, cell) if one.record not in stored}
        record = store.trial_record(cell.trial) if left else None
        for name in sorted(left & (record.checkpoints.keys() if record else set())):
            path = layout.weights(cell.trial, name)
            reason = store.file_fault(path, record.checkpoints[name].sha256 if record else None)
            if reason not in (None, ABSENT):
                with contextlib.suppress(FileNotFoundError):  # another driver was faster
                    set_trial_aside(store, layout.short(cell.trial))
                print(f"{path}: {reason}; {cell.label} seed {cell.seed} is trained again", file=sys.stderr, flush=True)
                break
