"""TensorBoard."""

from __future__ import annotations

import itertools
from pathlib import Path

from ray.tune.logger import TBXLoggerCallback

from sweep.engine.loggers.runs import RunLogger


class TensorBoard(RunLogger, TBXLoggerCallback):
    """Write to the folder `tensorboard` of the store, or of the driver's working folder if the store is remote."""

    package = "tensorboardX"

    def __init__(self, folder: Path, study: str) -> None:
        super().__init__(folder, study)
        writer, numbers = self._summary_writer_cls, itertools.count()
        # By itself a file that is begun in the same second as another one of its run would take its place.
        self._summary_writer_cls = lambda path, **options: writer(
            path, filename_suffix=f".{next(numbers):06d}", **options
        )

    def path(self, name: str) -> Path:
        return self.folder / "tensorboard" / self.study / name
