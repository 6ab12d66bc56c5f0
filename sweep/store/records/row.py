"""External models as rows of a study's tables."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sweep.store import layout
from sweep.store.records.record import FileName, Provenance, Record


class RowRecord(Provenance, Record):
    """A row in a study's tables for one model that the study did not train, so n = 1."""

    kind = "row"
    study: Annotated[str, Field(pattern=r"^[\w-]+$")]
    label: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_+-]*$")]
    display: str
    subject: FileName  # the name under which its evaluations are stored
    checkpoint: FileName
    model: str = ""  # the network's name, or the function that built it

    @property
    def path(self) -> str:
        return layout.row_record(self.study, self.label)
