"""Transfer attacks: counterexamples of other models applied to one model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from sweep.store import layout
from sweep.store.records.record import FileName, Part, Provenance, Record
from sweep.store.verdicts import packed, unpack

if TYPE_CHECKING:
    import numpy as np

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Transfer(Part):
    """The counterexamples of one evaluation of another model, applied to this one, indexed by its images."""

    trial: FileName
    checkpoint: FileName
    attack: FileName  # id of the attack
    sha256: Sha256  # of the counterexample file
    first: int = Field(0, ge=0)  # index of its first image among the test images
    images: int = Field(ge=1)
    right: int = Field(ge=0)  # number of clean images that this model classifies correctly
    tried: str  # images that have a counterexample and that this model classifies correctly when clean
    fooled: str  # those of them that it misclassifies

    @property
    def source(self) -> tuple[str, str, str]:
        return self.trial, self.checkpoint, self.attack

    @property
    def tried_images(self) -> np.ndarray:
        return unpack(self.tried, self.images)

    @property
    def fooled_images(self) -> np.ndarray:
        return unpack(self.fooled, self.images)

    @model_validator(mode="after")
    def _only_what_was_tried_fell(self) -> Self:
        tried, fooled = (int.from_bytes(packed(bits, self.images)) for bits in (self.tried, self.fooled))
        if fooled & ~tried:
            raise ValueError("images fell that were not tried")
        return self


class TransferRecord(Provenance, Record):
    """All transfers to one checkpoint within one norm ball. It grows as more models are evaluated."""

    kind = "transfer"
    trial: FileName
    checkpoint: FileName
    weights: Sha256
    norm: Annotated[str, Field(pattern=r"^\w+$")]
    epsilon: Annotated[str, Field(pattern=r"^[\w./]+$")]
    transfers: tuple[Transfer, ...] = ()

    @property
    def path(self) -> str:
        return layout.transfer_record(self.trial, self.checkpoint, self.norm, self.epsilon)

    def with_transfers(self, others: Iterable[Transfer]) -> Self:
        """Return the record with further transfers added. They replace earlier ones from the same source."""
        found = {one.source: one for one in (*self.transfers, *others)}
        return self.model_copy(update={"transfers": tuple(found[key] for key in sorted(found))})
