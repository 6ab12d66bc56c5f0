"""Data sets by name. `dataset_names` and `dataset_facts` need neither torch nor files; `load` needs both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainers.data.facts import DataMissing, DatasetFacts, dataset_facts, dataset_names

if TYPE_CHECKING:
    from trainers.data.bundle import DataBundle

__all__ = ["DataMissing", "DatasetFacts", "dataset_facts", "dataset_names", "load"]


def load(name: str, data_dir: Path | str | None = None, *, download: bool = True) -> DataBundle:
    """The whole data set as uint8 tensors. Raises DataMissing when it is neither there nor to be had."""
    from trainers.data import sources

    return sources.load(name, data_dir, download=download)
