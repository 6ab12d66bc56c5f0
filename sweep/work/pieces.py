"""The pieces of work in a study, each of which is one trial of Ray Tune.

A piece is a search candidate on a seed, a training, an attack on a trained model (or a part of it), or a diagnosis. It
becomes the config of a Tune trial, and is restored from that config in the worker, where `run` does it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from sweep.commands import narrowed
from sweep.evaluation.asked import Diagnosis, Evaluation
from sweep.evaluation.attack import attack
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.numerics import NUMERICS_VERSION
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.search import CandidateRecord
from sweep.store.records.trial import TrialRecord
from sweep.trials.cost import diagnosis_passes, epochs, training_cost
from trainers.attacks import from_record
from trainers.config import TrialConfig

# In order of urgency: searches first, because other work waits for them; attacks use what trainings leave free.
STAGES = ("search", "train", "attack", "diagnose")

Metrics = dict[str, Any]  # of a finished piece, as reported to Tune; `state` says how it ended


@dataclass(frozen=True)
class Setting:
    """Settings that all pieces of a run share, wherever they run."""

    store: str
    data_dir: str
    study: str = ""
    plugins: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    command: str = ""
    retry_failed: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)  # of the driver; nodes with others get no work
    dataset: str | None = None  # required on every node
    wrappers: tuple[Any, ...] = ()  # their files are required on every node
    data: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of the data and the files, as on the driver
    sign_seconds: float = 20.0  # maximum seconds between signs of life


@dataclass(frozen=True)
class Workplace:
    """The surroundings of a piece in its process. `folder` holds the files of its trial."""

    setting: Setting
    store: Store
    folder: Path
    report: Callable[[Metrics], None]
    lease: Callable[[str], AbstractContextManager[bool]]  # yields False while another process holds it
    device: str = "cpu"


@dataclass(frozen=True)
class Piece(ABC):
    """One piece of work on one trial of a study. `label` is its column."""

    stage: ClassVar[str]
    needs_files: ClassVar[bool] = False  # files of its trial, to resume from
    is_leased: ClassVar[bool] = True  # as a whole; an attack leases its chunks
    label: str
    config: TrialConfig
    trial: str

    @property
    @abstractmethod
    def name(self) -> str:
        """A name that is unique among all pieces of a sweep."""

    @property
    def lease(self) -> str:
        return self.name

    @property
    def title(self) -> str:
        """The piece's name in Ray's tools, logs and messages."""
        return f"{self.label} seed {self.config.seed}"

    @property
    @abstractmethod
    def cost(self) -> float:
        """The number of passes of images through the network, for the order of pieces and the remaining time."""

    @property
    def epochs(self) -> int:
        return epochs(self.config)

    def retry_command(self, command: str) -> str:
        """Return the command of a sweep, narrowed to this piece."""
        return narrowed(command, *self._retry_words())

    def tune_config(self, study: str) -> dict[str, Any]:
        """Return the complete config of the piece's Tune trial. The most important values precede the whole recipe."""
        settings = self.config.model_dump(mode="json", exclude_none=True)
        return {
            "title": self.title,
            "study": study,
            "stage": self.stage,
            "column": self.label,
            **{name: settings[name] for name in ("method", "hyperparameters", "dataset", "model", "seed")},
            **self._details(),
            "trial": self.trial,
            "settings": settings,
        }

    @abstractmethod
    def stored(self, store: Store, *, retry_failed: bool = False) -> Metrics | None:
        """Return the metrics of a piece that is already done, or None."""

    @abstractmethod
    def run(self, place: Workplace) -> Metrics:
        """Do the piece in a worker: resume from what is stored, and write the record last."""

    def failed_record(self, reason: str, log: list[str], command: str) -> TrialRecord | None:
        """Return the record of a piece that failed for good, or None if the next run simply tries it again."""
        return None

    def _details(self) -> dict[str, Any]:
        return {}

    def _retry_words(self) -> tuple[str, ...]:
        return "--methods", self.label, "--seeds", str(self.config.seed), "--retry-failed"


@dataclass(frozen=True)
class Training(Piece):
    """The training of one column on one seed."""

    stage = "train"
    needs_files = True

    @property
    def name(self) -> str:
        return layout.trial_lease(self.trial)

    @property
    def cost(self) -> float:
        return training_cost(self.config)

    def stored(self, store: Store, *, retry_failed: bool = False) -> Metrics | None:
        record = store.usable(TrialRecord, layout.trial_record(self.trial))
        return None if record is None or (record.status == "failed" and retry_failed) else trial_metrics(record)

    def run(self, place: Workplace) -> Metrics:
        from sweep.work.training import train_trial

        return trial_metrics(train_trial(self, place))

    def failed_record(self, reason: str, log: list[str], command: str) -> TrialRecord:
        from sweep.trials.provenance import versions

        return TrialRecord(
            trial=self.trial,
            config=self.config,
            numerics=NUMERICS_VERSION,
            status="failed",
            reason=reason,
            log=tuple(log),
            versions=versions(),
            command=self.retry_command(command),
        )


@dataclass(frozen=True)
class Candidate(Training):
    """A training proposed by a search. It ends early at an epoch where its metric is below the cut-off."""

    stage = "search"
    search: str
    index: int
    cut_offs: Mapping[int, float]
    metric: str

    @property
    def name(self) -> str:
        return f"{self.search}-{layout.short(self.trial)}"  # two searches may propose the same training

    @property
    def lease(self) -> str:
        return layout.trial_lease(self.trial)

    @property
    def title(self) -> str:
        return f"{self.label} candidate {self.index} seed {self.config.seed}"

    def stored(self, store: Store, *, retry_failed: bool = False) -> Metrics | None:
        pruned = store.usable(CandidateRecord, layout.candidate_record(self.search, self.trial))
        if pruned is None:
            return super().stored(store, retry_failed=retry_failed)
        return {"state": "pruned", "epochs": len(pruned.curve)}

    def run(self, place: Workplace) -> Metrics:
        from sweep.work.training import train_candidate

        record = train_candidate(self, place)
        if isinstance(record, CandidateRecord):
            return {"state": "pruned", "epochs": len(record.curve)}
        return trial_metrics(record)

    def _details(self) -> dict[str, Any]:
        cut_offs = [[epoch, value] for epoch, value in sorted(self.cut_offs.items())]
        return {"search": self.search, "candidate": self.index, "cut_offs": cut_offs, "metric": self.metric}

    def _retry_words(self) -> tuple[str, ...]:
        return "--methods", self.label, "--retry-failed"  # its seed belongs to the search, not to the tables


@dataclass(frozen=True)
class Attack(Piece):
    """An attack on a checkpoint, or one of several workers that share its images."""

    stage = "attack"
    is_leased = False
    evaluation: Evaluation
    part: int = 1
    parts: int = 1

    @property
    def name(self) -> str:
        return self.lease if self.part == 1 else f"{self.lease}-{self.part}"

    @property
    def lease(self) -> str:
        return self.evaluation.lease

    @property
    def title(self) -> str:
        of = f" {self.part}/{self.parts}" if self.parts > 1 else ""
        checkpoint, attack = self.evaluation.checkpoint, self.evaluation.attack
        where = "" if checkpoint == self.config.selection.headline else f" {checkpoint}"
        trained = self.config.recipe.attack
        usual = attack.epsilon == "0" or (attack.norm, attack.epsilon) == (trained.norm, trained.epsilon)
        radius = "" if usual else f" {attack.norm} {attack.epsilon}"
        return f"{super().title}{where} · {attack.name}{radius}{of}"

    @property
    def cost(self) -> float:
        return self.evaluation.cost / self.parts

    def stored(self, store: Store, *, retry_failed: bool = False) -> Metrics | None:
        record = store.usable(EvaluationRecord, self.evaluation.record)
        return None if record is None else evaluation_metrics(record)

    def run(self, place: Workplace) -> Metrics:
        from sweep.evaluation.checkpoints import trial_data_sha256, trial_parts

        evaluation, setting = self.evaluation, place.setting
        subject = (setting.store, evaluation.trial, evaluation.checkpoint, setting.data_dir, place.device)
        (model, images, labels), data = trial_parts(*subject), trial_data_sha256(*subject)
        record = attack(
            place.store,
            evaluation,
            (model, evaluation.attack.images_of(images, labels, self.config.dataset, setting.data_dir), labels),
            claim=lambda chunk: place.lease(f"{self.lease}{chunk}"),
            on_batch=lambda progress: place.report(vars(progress)),
            device=place.device,
            commit=setting.commit,
            data=data,
        )
        return {"state": "shared"} if record is None else evaluation_metrics(record)

    def _details(self) -> dict[str, Any]:
        evaluation = self.evaluation
        return {
            "attack": evaluation.attack.model_dump(mode="json", exclude_none=True),
            "checkpoint": evaluation.checkpoint,
            "part": self.part,
            "parts": self.parts,
            "evaluation": {
                "images": evaluation.images,
                "shards": evaluation.shards,
                "batch_size": evaluation.batch_size,
                "counterexamples": evaluation.counterexamples,
            },
        }


@dataclass(frozen=True)
class DiagnosisPiece(Piece):
    """Margins and gradient norms of one checkpoint."""

    stage = "diagnose"
    diagnosis: Diagnosis

    @property
    def name(self) -> str:
        return self.diagnosis.record.removesuffix(".json").replace("/", "-")

    @property
    def title(self) -> str:
        return f"{super().title} · diagnosis {self.diagnosis.checkpoint}"

    @property
    def cost(self) -> float:
        return diagnosis_passes(self.config, self.diagnosis.images)

    def stored(self, store: Store, *, retry_failed: bool = False) -> Metrics | None:
        from sweep.evaluation.diagnosis import stored_diagnosis

        record = stored_diagnosis(store, self.diagnosis)
        return None if record is None else {"state": "done", **_numbers(record.summary)}

    def run(self, place: Workplace) -> Metrics:
        from sweep.evaluation.diagnosis import diagnose_trial

        setting = place.setting
        record = diagnose_trial(
            place.store, self.diagnosis, setting.data_dir, device=place.device, commit=setting.commit
        )
        return {"state": "done", **_numbers(record.summary)}

    def _details(self) -> dict[str, Any]:
        wanted = self.diagnosis
        return {
            "checkpoint": wanted.checkpoint,
            "diagnosis": {"epsilon": wanted.epsilon, "norm": wanted.norm, "images": wanted.images},
        }


def piece_from(config: Mapping[str, Any]) -> Piece:
    """Return the piece that `tune_config` described."""
    common = config["column"], TrialConfig.model_validate(config["settings"]), config["trial"]
    match config["stage"]:
        case "train":
            return Training(*common)
        case "search":
            cut_offs = {int(epoch): float(value) for epoch, value in config["cut_offs"]}
            return Candidate(*common, config["search"], config["candidate"], cut_offs, config["metric"])
        case "attack":
            kind = from_record(dict(config["attack"]))
            evaluation = Evaluation(config["trial"], config["checkpoint"], kind, **config["evaluation"])
            return Attack(*common, evaluation, config["part"], config["parts"])
        case "diagnose":
            return DiagnosisPiece(*common, Diagnosis(config["trial"], config["checkpoint"], **config["diagnosis"]))
        case other:
            raise ValueError(f"stage {other!r} is none of {', '.join(STAGES)}")


def trial_metrics(record: TrialRecord) -> Metrics:
    """Return the metrics of a training that the tables show: the accuracies of every checkpoint that was kept."""
    length = {"epochs": len(record.curve), "wall_seconds": record.wall_seconds}
    headline, numbers = record.config.selection.headline, dict(record.metrics)
    for split in ("test", "validation"):
        for name, key in (("robust", "pgd"), ("clean", "clean")):
            value = numbers.get(f"{headline}_{split}_{key}_accuracy")
            if value is not None:
                numbers.setdefault(f"{name}_accuracy", value)
    return {"state": record.status, **length, **numbers}


def evaluation_metrics(record: EvaluationRecord) -> Metrics:
    return {"state": "done", "accuracy": record.accuracy, "images": record.images}


def plain(config: Mapping[str, Any]) -> str:
    """Return a config as JSON text. Raise TypeError if it holds anything but plain values."""
    return json.dumps(config)


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, int | float)}
