"""What a store holds, typed: one frozen class per kind of record. A record that is read has passed every check here."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sweep.store import layout
from sweep.store.encoding import BrokenRecord, NewerRecord, decode, digest, encode
from trainers.config import TrialConfig

FORMAT = 1
CurveRow = dict[str, Any]  # numbers by name, None where an epoch was not evaluated
TrialName = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]
FileName = Annotated[str, Field(pattern=r"^[\w+-][\w.+-]*$")]


class Part(BaseModel):
    """Of a record. Keys that this version does not know are ignored: a later one may add some."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Record(Part):
    kind: ClassVar[str]

    @property
    def path(self) -> str:
        """The one place in a store where this record belongs."""
        raise NotImplementedError

    def encoded(self) -> bytes:
        # Not mode="json", which turns an infinite hyperparameter into null before the encoding can keep it.
        return encode({"kind": self.kind, "format": FORMAT, **self.model_dump()})

    @classmethod
    def decoded(cls, path: str, data: bytes) -> Self:
        """The record in these bytes, which were found at this path; BrokenRecord says what keeps it from being one."""
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
        """With what only the place says of a record."""
        return content


class Provenance(Part):
    """Where and with what a number was made. What is empty or absent was not recorded by the version that made it."""

    versions: dict[str, str] = {}  # torch's own says which build it is
    commit: str | None = None
    device: str = ""
    device_kind: str = ""  # cpu or cuda
    devices: tuple[str, ...] = ()  # all that took part, in the order in which they began
    precision: str = ""  # of the network: ieee, tf32 or bf16
    threads: int | None = None
    data: dict[str, str] = {}  # SHA-256 of the data set as it was loaded, and of files that came with it, by name
    command: str | None = None


class Checkpoint(Part):
    epoch: int = Field(ge=0)
    sha256: str
    bytes: int = 0


class TrialRecord(Provenance, Record):
    """One training's outcome; written last of all that belongs to it."""

    kind = "trial"
    trial: TrialName
    config: TrialConfig
    numerics: int = 1
    status: Literal["done", "collapsed", "failed"]
    reason: str | None = None
    curve: tuple[CurveRow, ...] = ()
    checkpoints: dict[str, Checkpoint] = {}
    metrics: dict[str, float] = {}
    steps: int = 0
    wall_seconds: float = 0.0
    log: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return layout.trial_record(self.trial)


class KeptFile(Part):
    """A file beside a record."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: int = Field(ge=0)
    count: int = Field(ge=0)  # of the things in it


class EvaluationRecord(Provenance, Record):
    """Verdicts of one attack on one checkpoint, image by image; every number in it is read off them."""

    kind = "evaluation"
    trial: FileName
    checkpoint: FileName
    attack: dict[str, Any]  # as the attack describes itself
    images: int = Field(ge=1)
    verdicts: str
    clean: str | None = None
    phases: dict[str, str] = {}
    accuracy: float
    warnings: tuple[str, ...] = ()
    wall_seconds: float = 0.0
    counterexamples: KeptFile | None = None  # what fooled the model; older evaluations kept none

    @cached_property
    def path(self) -> str:
        return layout.evaluation_record(self.trial, self.checkpoint, attack_id(self.attack))

    def model_copy(self, **options: Any) -> Self:
        """Without what was worked out from the values before: pydantic would take it along."""
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

    @cached_property
    def clean_accuracy(self) -> float | None:
        return None if self.clean is None else _count(self.clean, self.images) / self.images

    @model_validator(mode="after")
    def _numbers_are_those_of_the_verdicts(self) -> Self:
        share = _count(self.verdicts, self.images) / self.images
        if not abs(share - self.accuracy) <= 0.5 / self.images:
            raise ValueError(f"accuracy {self.accuracy} is not that of its verdicts, {share:.6g}")
        for bits in (self.clean, *self.phases.values()):
            if bits is not None:
                _packed(bits, self.images)
        return self


class ShardRecord(Provenance, Record):
    """Some images of one phase of an evaluation that is not complete."""

    kind = "shard"
    folder: str
    first: int = Field(ge=0)
    last: int
    phase: str = ""
    correct: str
    clean: str | None = None
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    counterexamples: str | None = None  # their file in base64, empty where no image fell; None where none are kept

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
                _packed(bits, self.last - self.first)
        return self


class CandidateRecord(Record):
    """What a search's candidate reached before it was pruned; its weights are gone."""

    kind = "candidate"
    search: FileName
    trial: TrialName
    status: Literal["pruned"] = "pruned"
    curve: tuple[CurveRow, ...]

    @property
    def path(self) -> str:
        return layout.candidate_record(self.search, self.trial)

    @classmethod
    def _located(cls, content: dict[str, Any], path: str) -> dict[str, Any]:
        return {"search": path.split("/")[1], **content}


class SeedEntry(Part):
    """One training of a candidate; `values` has one number per objective, None where it failed."""

    seed: int
    trial: TrialName
    state: Literal["open", "done", "pruned", "collapsed", "failed"] = "open"
    values: tuple[float, ...] | None = None
    epochs: int = 0


class CandidateEntry(Part):
    """One candidate of a search as its record lists it; trial and curves are those of its first seed."""

    index: int = Field(ge=0)
    generation: int = Field(ge=0)
    hyperparameters: dict[str, Any]
    trial: TrialName
    state: Literal["open", "done", "pruned", "collapsed", "failed"] = "open"
    value: float | None = None
    values: tuple[float, ...] | None = None  # one per objective
    epochs: int = 0  # of all seeds
    robust: tuple[float | None, ...] = ()  # the first objective on held-out images, per epoch
    clean: tuple[float | None, ...] = ()
    runs: tuple[SeedEntry, ...] = ()  # one per seed; records made before there were several have none


class SearchRecord(Record):
    kind = "search"
    id: FileName
    label: str
    method: str
    space: dict[str, str]
    objective: str
    objectives: tuple[str, ...]
    sampler: str
    pruner: str
    seed: int  # the first one
    seeds: tuple[int, ...] = ()  # empty in records made before there were several
    rungs: tuple[int, ...] = ()
    generation: int
    wanted: int
    candidates: tuple[CandidateEntry, ...]
    front: tuple[int, ...] = ()
    chosen: dict[str, Any] | None = None
    reason: str = ""
    status: Literal["running", "done", "failed"]
    paper_value: dict[str, Any] = {}
    own_value: dict[str, Any] = {}  # of the study, always the first candidate
    versions: dict[str, str] = {}

    @property
    def all_seeds(self) -> tuple[int, ...]:
        return self.seeds or (self.seed,)

    @property
    def path(self) -> str:
        return layout.search_record(self.id)

    @model_validator(mode="after")
    def _a_finished_search_chose(self) -> Self:
        if self.status == "done" and self.chosen is None:
            raise ValueError("a search that is done has chosen something")
        return self


class DiagnosticsRecord(Provenance, Record):
    """Means of what was measured beside accuracy; the values of each image are in the file `arrays` beside it."""

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


class DecisionRecord(Provenance, Record):
    """A claim about two labels of a study that seeds were added for until it was decided, or the budget ended."""

    kind = "decision"
    study: Annotated[str, Field(pattern=r"^[\w-]+$")]
    first: str
    second: str
    direction: Literal[1, -1]  # first above or below second
    margin: float = 0.0
    measure: str
    epsilon: str | None = None  # None: the study's own
    checkpoint: str | None = None
    alpha: float = Field(gt=0, lt=1)
    scale: float  # of the effect sizes in the mixture
    resolution: float = Field(0.0, ge=0)
    seeds: tuple[int, ...] = Field(min_length=2)
    trials: tuple[tuple[TrialName, TrialName], ...]
    differences: tuple[float, ...]  # first minus second, seed by seed
    left_out: tuple[int, ...] = ()  # seeds of which a training collapsed or failed
    verdict: Literal["holds", "does not hold", "undecided"]
    estimate: float
    low: float | None = None  # None: unbounded
    high: float | None = None
    e_value: float

    @property
    def path(self) -> str:
        """By what is asked and, through the first two trials, of which configurations."""
        asked = (
            "study",
            "first",
            "second",
            "direction",
            "margin",
            "measure",
            "epsilon",
            "checkpoint",
            "alpha",
            "scale",
        )
        content = [getattr(self, name) for name in asked]
        return layout.decision_record(self.study, digest([*content, self.trials[0]])[:16])

    @model_validator(mode="after")
    def _a_pair_of_trials_for_each_seed(self) -> Self:
        if not len(self.seeds) == len(self.trials) == len(self.differences):
            raise ValueError(f"{len(self.seeds)} seeds, {len(self.trials)} trials, {len(self.differences)} differences")
        if self.left_out and self.verdict != "undecided":
            raise ValueError("decided although a seed was left out")
        return self


class RowRecord(Provenance, Record):
    """A model that no training of a study made, as a row of the study's tables: one model, so n = 1."""

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


class PlannedCell(Part):
    """One cell of a study; without a trial while a search has still to choose its hyperparameters."""

    label: str
    display: str = ""
    method: str
    hyperparameters: dict[str, Any] = {}
    seed: int
    trial: TrialName | None = None


class PlannedSearch(Part):
    label: str
    id: FileName


class PlannedAttack(Part):
    id: str
    name: str
    epsilon: str = ""
    norm: str = "linf"


class PlannedEvaluation(Part):
    """What a study's own `evaluation` section asks for, as far as stored results are concerned."""

    suite: str | None = None
    epsilon: str = "8/255"
    images: int | None = None
    checkpoints: tuple[str, ...] = ("headline",)
    diagnostics: bool = False
    diagnosed: tuple[str, ...] = ()


class Manifest(Record):
    """What a study consists of now, for those who read its results."""

    kind = "study"
    name: Annotated[str, Field(pattern=r"^[\w-]+$")]
    title: str = ""
    study: dict[str, Any] = {}  # as its file and options had it
    dataset: str
    model: str
    epsilon: str = "8/255"
    norm: str = "linf"
    protocol: str = "paper"
    checkpoint: str
    seeds: tuple[int, ...]
    cells: tuple[PlannedCell, ...]
    searches: tuple[PlannedSearch, ...] = ()
    attacks: tuple[PlannedAttack, ...] = ()
    config_by_label: dict[str, TrialConfig] = {}  # the seed aside
    inner_attacks: dict[str, dict[str, str]] = {}  # by label, what is the method's own
    displays: dict[str, str] = {}  # how its data set and network are written

    @property
    def path(self) -> str:
        return layout.manifest(self.name)

    @property
    def evaluation(self) -> PlannedEvaluation:
        return PlannedEvaluation.model_validate(self.study.get("evaluation") or {})

    def checkpoints(self, label: str) -> list[str]:
        """Those of a label that are evaluated, the headline's own name in place of `headline`."""
        wanted = self.evaluation.checkpoints
        return self.config_by_label[label].selection.named(wanted) if label in self.config_by_label else []

    def evaluation_paths(self, cell: PlannedCell) -> list[str]:
        """The evaluations that a finished trial of this cell has."""
        if cell.trial is None:
            return []
        return [
            layout.evaluation_record(cell.trial, checkpoint, attack.id)
            for checkpoint in self.checkpoints(cell.label)
            for attack in self.attacks
        ]


class Progress(Part):
    """How far a running training is: a note for people, without a checksum."""

    trial: str
    label: str
    seed: int
    epoch: int
    epochs: int
    started: float
    updated: float
    host: str
    pid: int


RECORD_TYPES: dict[str, type[Record]] = {
    one.kind: one
    for one in (
        *(TrialRecord, EvaluationRecord, ShardRecord, CandidateRecord, SearchRecord, DiagnosticsRecord),
        *(DecisionRecord, RowRecord, Manifest),
    )
}


def attack_id(attack: Mapping[str, Any]) -> str:
    """A file name: the attack's name and radius for people, a hash of all its values for certainty."""
    content = json.dumps(attack, sort_keys=True, separators=(",", ":"))
    norm = "" if attack.get("norm", "linf") == "linf" else f"-{attack['norm']}"
    radius = "" if attack.get("kind") == "clean" else "-" + str(attack.get("epsilon", "")).replace("/", "_")
    return f"{attack.get('name')}{norm}{radius}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def pack(verdicts: np.ndarray) -> str:
    return base64.b64encode(np.packbits(verdicts.astype(bool)).tobytes()).decode()


def unpack(text: str, count: int) -> np.ndarray:
    """The booleans behind base64 of np.packbits."""
    return np.unpackbits(_packed(text, count), count=count).astype(bool)


def _count(text: str, images: int) -> int:
    """How many of the verdicts are true; the padding of np.packbits is zero."""
    return int(np.bitwise_count(_packed(text, images)).sum())


def _packed(text: str, count: int) -> np.ndarray:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as fault:
        raise ValueError(f"verdicts that are not base64 ({fault})") from None
    if count < 1 or len(data) != (count + 7) // 8:
        raise ValueError(f"{len(data)} bytes of verdicts for {count} images")
    return np.frombuffer(data, np.uint8)
