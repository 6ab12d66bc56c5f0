"""What other models' counterexamples do to one model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from sweep.store import layout
from sweep.store.records.record import FileName, Part, Provenance, Record
from sweep.store.verdicts import packed, unpack

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Transfer(Part):
    """The counterexamples of one evaluation of another model, tried on this one; by places among its images."""

    trial: FileName
    checkpoint: FileName
    attack: FileName  # its id
    sha256: Sha256  # of the file of counterexamples
    first: int = Field(0, ge=0)  # of its images, among the test images
    images: int = Field(ge=1)
    right: int = Field(ge=0)  # of them are classified correctly by this model when they are clean
    tried: str  # of which images there is a counterexample, and this model is right when they are clean
    fooled: str  # which of these it misclassifies

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
    """All that was tried on one checkpoint in one ball; grows as further models are evaluated."""

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
        """Beside its own; a source that was tried again counts as it is now."""
        found = {one.source: one for one in (*self.transfers, *others)}
        return self.model_copy(update={"transfers": tuple(found[key] for key in sorted(found))})
