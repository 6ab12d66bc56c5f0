"""A complete study in this process: the tasks and records of a sweep without Ray."""

from __future__ import annotations

import time

from sweep.evaluation.asked import evaluations_of
from sweep.store.base import Store
from sweep.store.manifests import write_manifest
from sweep.studies.model import Study
from sweep.trials.cells import expand, manifest
from sweep.work.pieces import Attack, Setting, Training
from sweep.work.trainable import trainable


def run(study: Study, store: Store, data_dir: str = "data") -> dict[str, float]:
    """Run a study, and return the processor seconds of each evaluation by its record's path."""
    setting = Setting(store.uri, data_dir)
    seconds: dict[str, float] = {}
    cells = expand(study)
    for cell in cells:
        assert cell.trial is not None
        trainable(Training(cell.label, cell.config, cell.trial).tune_config(study.name), setting)
        for wanted in evaluations_of(study, cell):
            started = time.process_time()
            trainable(Attack(cell.label, cell.config, cell.trial, wanted).tune_config(study.name), setting)
            seconds[wanted.record] = time.process_time() - started
    write_manifest(store, manifest(study, cells))
    return seconds
