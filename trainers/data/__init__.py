"""Data sets by name. Names and facts need neither torch nor files; `load` needs both."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trainers.dataset import DataMissing, DatasetFacts, DataSource, Parts
from trainers.plugins import registry

if TYPE_CHECKING:
    from trainers.data.bundle import DataBundle


def dataset_names() -> list[str]:
    """Return the names of all data sets, plug-ins included."""
    return registry.DATASETS.names()


def dataset_facts(name: str) -> DatasetFacts:
    """Return a data set's facts without opening a file."""
    return registry.DATASETS.get(name).facts


def needs_files(name: str) -> bool:
    """Return True if the data set is read from the data folder."""
    return registry.DATASETS.get(name).files is not None


def load(name: str, data_dir: Path | str | None = None, *, download: bool = True) -> DataBundle:
    """Return the whole data set as uint8 tensors.

    `data_dir` is `data` by default. Raise DataMissing if the files are not there and cannot be downloaded.
    """
    from trainers.data.bundle import DataBundle

    source, folder = registry.DATASETS.get(name), Path(data_dir or "data")
    return DataBundle(name, *_parts(name, source, folder, download), known_sha256=source.sha256)


def _parts(name: str, source: DataSource, folder: Path, download: bool) -> Parts:
    if source.files is None:
        return _loaded(name, source, folder)
    try:
        return _loaded(name, source, folder)
    except (RuntimeError, OSError) as absent:
        reason: Exception = absent
    if download:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / ".download.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # trials that start together must not download twice
                return source.load(folder, True)
        except (RuntimeError, OSError) as failed:
            reason = failed
    writable = os.access(folder, os.W_OK) or not folder.exists()
    attempt = (
        f"downloading failed: {' '.join(str(reason).split()).rstrip('.')}"
        if download
        else f"downloading is switched off ({str(reason).splitlines()[0]})"
    )
    raise DataMissing(
        f"data set {name!r} not found: looked for {source.files} in {folder.resolve()}"
        f"{'' if writable else ' (not writable)'}; {attempt}. Put the files there, or pass the folder that holds them "
        "with --data-dir"
    ) from None


def _loaded(name: str, source: DataSource, folder: Path) -> Parts:
    """Load a data set without downloading. Unexpected errors of its code, perhaps a user's, become DataMissing."""
    try:
        return source.load(folder, False)
    except (DataMissing, RuntimeError, OSError):
        raise
    except Exception as fault:
        raise DataMissing(f"data set {name!r} does not load: {type(fault).__name__}: {fault}") from fault
