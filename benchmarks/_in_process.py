"""A study from its first training to its last evaluation in this process: the tasks and records of a sweep, no Ray."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from sweep.evaluation.asked import evaluations_of
from sweep.evaluation.items import conclude, open_items
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.manifests import write_manifest
from sweep.studies.model import Study
from sweep.trials.cells import expand, manifest
from sweep.work.tasks import EvaluationPiece, Setting, Training, Workplace


def run(study: Study, store: Store, data_dir: str = "data") -> dict[str, float]:
    """Processor seconds of each evaluation, by its record's path."""
    setting = Setting(store.uri, data_dir)
    seconds: dict[str, float] = {}
    cells = expand(study)
    for cell in cells:
        assert cell.trial is not None
        place = store.local(layout.trial_folder(cell.trial)) or Path(tempfile.mkdtemp())
        Training(cell.label, cell.config, cell.trial).run(Workplace(setting, store, place, lambda _: None))
        for wanted in evaluations_of(study, cell):
            started = time.process_time()
            while items := open_items(store, wanted):
                for item in items:
                    piece = EvaluationPiece(cell.label, cell.config, cell.trial, item=item)
                    piece.run(Workplace(setting, store, place, lambda _: None))
            seconds[conclude(store, wanted).path] = time.process_time() - started
    write_manifest(store, manifest(study, cells))
    return seconds
