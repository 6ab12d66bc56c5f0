"""Evaluations: verdicts of an attack on a checkpoint, image by image, and shards of incomplete evaluations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from sweep.store import layout
from sweep.store.records.record import FileName, Part, Provenance, Record
from sweep.store.verdicts import count_true, packed, unpack, unpack_distances
from trainers.values import as_float

if TYPE_CHECKING:
    import numpy as np


class KeptFile(Part):
    """A file that belongs to a record."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: int = Field(ge=0)
    count: int = Field(ge=0)  # number of items in it


class EvaluationRecord(Provenance, Record):
    """Verdicts of one attack on one checkpoint, image by image. All its numbers are computed from them."""

    kind = "evaluation"
    trial: FileName
    checkpoint: FileName
    attack: dict[str, Any]  # the attack's own description
    images: int = Field(ge=1)
    verdicts: str
    clean: str | None = None
    phases: dict[str, str] = {}
    accuracy: float
    warnings: tuple[str, ...] = ()
    wall_seconds: float = 0.0
    counterexamples: KeptFile | None = None  # None if not stored, as in older evaluations
    distances: str | None = None  # distance of each image from its counterexample, for minimum-norm attacks

    @cached_property
    def path(self) -> str:
        return layout.evaluation_record(self.trial, self.checkpoint, attack_id(self.attack))

    def model_copy(self, **options: Any) -> Self:
        """Copy the record without cached properties, which pydantic would copy although they may be outdated."""
        copied = super().model_copy(**options)
        for name in ("path", "clean_accuracy"):
            copied.__dict__.pop(name, None)
        return copied

    @property
    def counterexamples_path(self) -> str:
        return layout.counterexamples(self.path)

    @property
    def survivors(self) -> np.ndarray:
        return unpack(self.verdicts, self.images)

    @property
    def fooled_at(self) -> np.ndarray:
        """Return the distance of each image from its counterexample. The record must have distances."""
        assert self.distances is not None
        return unpack_distances(self.distances, self.images)

    @cached_property
    def clean_accuracy(self) -> float | None:
        return None if self.clean is None else count_true(self.clean, self.images) / self.images

    @model_validator(mode="after")
    def _numbers_are_those_of_the_verdicts(self) -> Self:
        share = count_true(self.verdicts, self.images) / self.images
        if not abs(share - self.accuracy) <= 0.5 / self.images:
            raise ValueError(f"accuracy {self.accuracy} is not that of its verdicts, {share:.6g}")
        for bits in (self.clean, *self.phases.values()):
            if bits is not None:
                packed(bits, self.images)
        self._distances_are_those_of_the_verdicts()
        return self

    def _distances_are_those_of_the_verdicts(self) -> None:
        if self.distances is None:
            return
        distances = self.fooled_at
        if self.clean is not None and ((distances == 0) & unpack(self.clean, self.images)).any():
            raise ValueError("a right image at distance 0 from what fools the model")
        radius = as_float(str(self.attack.get("epsilon", "0")))
        if ((distances < radius) & self.survivors).any():
            raise ValueError("an image is robust at a radius within which it was fooled")


class ShardRecord(Provenance, Record):
    """Verdicts on a range of images in one phase of an incomplete evaluation."""

    kind = "shard"
    folder: str
    first: int = Field(ge=0)
    last: int
    phase: str = ""
    correct: str
    clean: str | None = None
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    counterexamples: str | None = None  # their file in base64, empty if no image was fooled; None if not stored
    distances: str | None = None

    @property
    def path(self) -> str:
        return layout.shard(self.folder, self.first, self.last, self.phase)

    @classmethod
    def _located(cls, content: dict[str, Any], path: str) -> dict[str, Any]:
        name = layout.shard_name(path)
        return {"folder": path.rpartition("/")[0], **(name._asdict() if name else {}), **content}

    @model_validator(mode="after")
    def _verdicts_fit_the_range(self) -> Self:
        for bits in (self.correct, self.clean):
            if bits is not None:
                packed(bits, self.last - self.first)
        if self.distances is not None:
            unpack_distances(self.distances, self.last - self.first)
        return self


def attack_id(attack: Mapping[str, Any]) -> str:
    """Return a file name for an attack: name and radius for readability, a hash of all values for uniqueness."""
    content = json.dumps(attack, sort_keys=True, separators=(",", ":"))
    norm = "" if attack.get("norm", "linf") == "linf" else f"-{attack['norm']}"
    radius = "" if attack.get("kind") == "clean" else "-" + str(attack.get("epsilon", "")).replace("/", "_")
    return f"{attack.get('name')}{norm}{radius}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
