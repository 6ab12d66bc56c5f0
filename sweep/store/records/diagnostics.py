"""Diagnostics: measurements of a checkpoint other than accuracy."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from sweep.store import layout
from sweep.store.records.record import FileName, Provenance, Record, TrialName


class DiagnosticsRecord(Provenance, Record):
    """Means of the diagnostics of a checkpoint. The file `arrays` in the same folder holds the values per image."""

    kind = "diagnostics"
    trial: TrialName
    checkpoint: FileName
    epsilon: str
    norm: str = "linf"
    images: int | None = None
    summary: dict[str, float | None]
    arrays: FileName
    arrays_sha256: str | None = None
    wall_seconds: float = 0.0

    @property
    def path(self) -> str:
        return layout.diagnostics_record(self.trial, self.checkpoint, self.epsilon, self.images, self.norm)

    @property
    def arrays_path(self) -> str:
        return f"{self.path.removesuffix('.json')}.npz"

    @model_validator(mode="after")
    def _arrays_are_beside_it(self) -> Self:
        if self.arrays != self.arrays_path.rpartition("/")[2]:
            raise ValueError(f"arrays {self.arrays!r} must be {self.arrays_path.rpartition('/')[2]!r}")
        return self
