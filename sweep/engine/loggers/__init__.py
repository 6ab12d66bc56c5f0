"""Curves and results of trainings for TensorBoard, Weights & Biases or MLflow, by Ray's own loggers.

Ray's loggers make a run of every Tune trial. Here a run is a training: its attacks are Tune trials of their own, and a
training that was resumed is another one. So they are given a `Run` in the place of the Tune trial, and nothing else
changes: epochs are the rows of its curves, and accuracies under attack are added when they are there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ray.tune.callback import Callback

from sweep.engine.options import LOGGERS, check_loggers, not_installed
from sweep.store.base import Store
from sweep.studies.model import Study

CLASSES = {"tensorboard": "TensorBoard", "wandb": "Wandb", "mlflow": "MLflow"}  # each in a module of that name


def callbacks(names: Sequence[str], study: Study, store: Store) -> list[Callback]:
    """Return the loggers of these names. Unknown ones, and those not installed, are refused before anything starts."""
    check_loggers(names)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    folder = (store.local("") or Path.cwd()).absolute()
    loggers: list[Callback] = []
    for name in names:
        try:
            import_module(LOGGERS[name])
        except ImportError:
            raise not_installed(name) from None
        kind = getattr(import_module(f"{__name__}.{name}"), CLASSES[name])
        loggers.append(kind(folder, study.name))
    return loggers
