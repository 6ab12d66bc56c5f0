"""The base of all records: kind, path and format number. Records are fully validated when they are read."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError

from sweep.store.encoding import BrokenRecord, NewerRecord, decode, encode

FORMAT = 1
CurveRow = dict[str, Any]  # values by name, None where an epoch was not evaluated
EVALUATED = ("clean_accuracy", "pgd_accuracy")
OFTEN_ABSENT = ("train_loss", *(f"{split}_{name}" for split in ("test", "validation") for name in EVALUATED))
TrialName = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]
FileName = Annotated[str, Field(pattern=r"^[\w+-][\w.+-]*$")]


def _whole(rows: tuple[CurveRow, ...]) -> tuple[CurveRow, ...]:
    names = dict.fromkeys(name for row in rows for name in row) | dict.fromkeys(OFTEN_ABSENT)
    return tuple(row if len(row) == len(names) else names | row for row in rows)


def _written(rows: tuple[CurveRow, ...]) -> list[CurveRow]:
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


# None is not written: most epochs of a long training are not evaluated, and nulls took up a third of a record.
Curve = Annotated[tuple[CurveRow, ...], AfterValidator(_whole), PlainSerializer(_written)]


class Part(BaseModel):
    """A part of a record. Unknown keys are ignored, because later versions may add some."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Record(Part):
    kind: ClassVar[str]

    @property
    def path(self) -> str:
        """Return the only path in a store at which this record may be."""
        raise NotImplementedError

    def encoded(self) -> bytes:
        # Not mode="json", which would turn an infinite hyperparameter into null before it is encoded.
        return encode({"kind": self.kind, "format": FORMAT, **self.model_dump()})

    @classmethod
    def decoded(cls, path: str, data: bytes) -> Self:
        """Decode and validate the record read from a path. Raise BrokenRecord with the reason if it is invalid."""
        content = decode(path, data)
        if content.get("kind") != cls.kind:
            raise BrokenRecord(path, f"foreign: not a record of kind '{cls.kind}'")
        written = content.get("format", FORMAT)
        if written != FORMAT:
            kind = NewerRecord if isinstance(written, int) and written > FORMAT else BrokenRecord
            raise kind(path, f"foreign: format {written!r}, this version reads {FORMAT}")
        try:
            record = cls.model_validate(cls._located(content, path))
        except ValidationError as fault:
            first = fault.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise BrokenRecord(path, ": ".join(filter(None, (where, first["msg"])))[:500]) from None
        if record.path != path:
            raise BrokenRecord(path, f"belongs at {record.path[:100]}")
        return record

    @classmethod
    def _located(cls, content: dict[str, Any], path: str) -> dict[str, Any]:
        """Return the content together with values that only the path holds."""
        return content


class Provenance(Part):
    """The origin of a result: software, device, data and command. Values that were not recorded are empty."""

    versions: dict[str, str] = {}  # that of torch includes the build
    commit: str | None = None
    device: str = ""
    device_kind: str = ""  # cpu or cuda
    devices: tuple[str, ...] = ()  # all that took part, in order of their start
    precision: str = ""  # precision of the network: ieee, tf32 or bf16
    threads: int | None = None
    data: dict[str, str] = {}  # SHA-256 of the loaded data set and of accompanying files, by name
    command: str | None = None
