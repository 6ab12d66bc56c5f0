"""The four kinds of tasks. Each knows when it is done already, how it is done in a worker, and what follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sweep.commands import narrowed
from sweep.evaluation.asked import Diagnosis
from sweep.evaluation.checkpoints import trial_data_sha256, trial_parts
from sweep.evaluation.diagnosis import diagnose_trial, stored_diagnosis
from sweep.evaluation.items import Item, run_item
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.numerics import NUMERICS_VERSION
from sweep.store.records.search import CandidateRecord
from sweep.store.records.trial import TrialRecord
from sweep.trials.cost import diagnosis_passes, epochs, training_cost
from sweep.trials.provenance import device, versions
from sweep.work.training import train_candidate, train_trial
from trainers.config import TrialConfig
from trainers.wrapper import Wrapper

if TYPE_CHECKING:
    from sweep.work.work import Work

# In the order of urgency: other work waits for a search; evaluations fill up what trainings leave free.
STAGES = ("search", "train", "evaluate", "diagnose")


@dataclass(frozen=True)
class Setting:
    """What every task of a sweep is told, wherever it runs."""

    store: str
    data_dir: str
    cpus: float = 1.0
    plugins: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    command: str = ""
    gpus: float = 0.0  # what each process was promised
    versions: Mapping[str, str] = field(default_factory=dict)  # of the driver; workers with others get no work
    dataset: str | None = None  # which every machine must have
    wrappers: Sequence[Wrapper] = ()  # whose files it must have too
    data: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of both, as the driver has them
    sign_seconds: float = 20.0  # a sign of life comes at least this often


@dataclass(frozen=True)
class Workplace:
    """What a task finds in the process that runs it; `folder` holds its trial's files.

    Records that it has stored and puts into `found` travel to the driver with its end: nobody has to read them there.
    """

    setting: Setting
    store: Store
    folder: Path
    report: Callable[[dict[str, Any]], None]
    found: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Task(ABC):
    stage: ClassVar[str]
    needs_files: ClassVar[bool] = False  # those of its trial, to go on from
    label: str
    config: TrialConfig
    trial: str

    @property
    @abstractmethod
    def name(self) -> str:
        """Unique among all tasks of a sweep."""

    @property
    def lease(self) -> str:
        """Who holds this does the task."""
        return self.name

    @property
    def title(self) -> str:
        return f"{self.label} seed {self.config.seed}"

    @property
    @abstractmethod
    def cost(self) -> float:
        """Relative, for the order and the time left."""

    @property
    def epochs(self) -> int:
        return epochs(self.config)

    @property
    def retry_words(self) -> tuple[str, ...]:
        return "--methods", self.label, "--seeds", str(self.config.seed), "--retry-failed"

    def retry_command(self, command: str) -> str:
        """Of a sweep's command, the one that does this task alone again."""
        return narrowed(command, *self.retry_words)

    @abstractmethod
    def stored(self, driver: Work) -> Sequence[Any] | None:
        """The records of somebody who has finished it in the meantime, None if nobody has."""

    @abstractmethod
    def run(self, place: Workplace) -> str:
        """In a worker: from what is stored of it to its end; returns how it ended."""

    @abstractmethod
    def after(self, driver: Work, found: Sequence[Any]) -> None:
        """In the driver, when it has ended well; `found` is empty where another driver's worker did it."""

    @abstractmethod
    def failed(self, driver: Work, reason: str, log: list[str]) -> None:
        """In the driver, when all retries have failed."""

    @abstractmethod
    def left_alone(self, driver: Work) -> None:
        """In the driver, when no machine can do it now: nothing of it is recorded."""


@dataclass(frozen=True)
class Training(Task):
    stage = "train"
    needs_files = True

    @property
    def name(self) -> str:
        return layout.trial_lease(self.trial)

    @property
    def cost(self) -> float:
        return training_cost(self.config)

    def stored(self, driver: Work) -> Sequence[Any] | None:
        record = driver.store.usable(TrialRecord, layout.trial_record(self.trial))
        return None if record is None or (record.status == "failed" and driver.retry_failed) else [record]

    def run(self, place: Workplace) -> str:
        return train_trial(self, place)

    def after(self, driver: Work, found: Sequence[Any]) -> None:
        driver.training_ended(self, found)

    def failed(self, driver: Work, reason: str, log: list[str]) -> None:
        driver.store.write_record(self._failed_record(driver, reason, log))
        driver.training_failed(self)

    def left_alone(self, driver: Work) -> None:
        driver.training_failed(self)

    def _failed_record(self, driver: Work, reason: str, log: list[str]) -> TrialRecord:
        return TrialRecord(
            trial=self.trial,
            config=self.config,
            numerics=NUMERICS_VERSION,
            status="failed",
            reason=reason,
            log=tuple(log),
            versions=versions(),
            command=self.retry_command(driver.command),
        )


@dataclass(frozen=True)
class CandidateTraining(Training):
    """A training that a search proposed, ended early at a rung where it is below the cut-off."""

    stage = "search"
    search: str
    index: int
    cut_offs: Mapping[int, float]
    metric: str  # what the cut-offs are about

    @property
    def title(self) -> str:
        return f"{self.label} candidate {self.index} seed {self.config.seed}"

    @property
    def retry_words(self) -> tuple[str, ...]:
        return "--methods", self.label, "--retry-failed"  # it is run by its search, not by a seed of the tables

    def stored(self, driver: Work) -> Sequence[Any] | None:
        pruned = driver.store.usable(CandidateRecord, layout.candidate_record(self.search, self.trial))
        return super().stored(driver) if pruned is None else ()  # what it left is looked for when its search is told

    def run(self, place: Workplace) -> str:
        return train_candidate(self, place)

    def after(self, driver: Work, found: Sequence[Any]) -> None:
        driver.candidates.ended(self, found)

    def failed(self, driver: Work, reason: str, log: list[str]) -> None:
        driver.store.write_record(self._failed_record(driver, reason, log))
        driver.candidates.failed(self)

    def left_alone(self, driver: Work) -> None:
        driver.candidates.left_alone(self)


@dataclass(frozen=True)
class EvaluationPiece(Task):
    """Some images of one phase of an evaluation; all evaluations of its trial are leased together."""

    stage = "evaluate"
    item: Item

    @property
    def lease(self) -> str:
        return layout.evaluations_lease(self.trial)

    @property
    def name(self) -> str:
        folder = self.item.evaluation.folder.replace("/", "-")
        return f"{folder}-{self.item.phase}-{self.item.first}-{self.item.last}"

    @property
    def title(self) -> str:
        return f"{super().title} {self.item.evaluation.attack.name}"

    @property
    def cost(self) -> float:
        return (self.item.last - self.item.first) * self.item.evaluation.attack.passes(self.item.phase)

    def stored(self, driver: Work) -> Sequence[Any] | None:
        return None  # its evaluation was looked at when it was opened, and is ours since

    def run(self, place: Workplace) -> str:
        """It saves after every batch, so a retry computes only what is missing."""
        evaluation, setting = self.item.evaluation, place.setting
        subject = (setting.store, evaluation.trial, evaluation.checkpoint, setting.data_dir, device())
        (model, images, labels), data = trial_parts(*subject), trial_data_sha256(*subject)
        images = evaluation.attack.images_of(images, labels, self.config.dataset, setting.data_dir)
        parts = (model, images, labels)
        for done in run_item(
            place.store, self.item, *parts, device=device(), commit=setting.commit, data=data, saved=place.found
        ):
            place.report({"images": done})
        return "done"

    def after(self, driver: Work, found: Sequence[Any]) -> None:
        driver.evaluations.piece_ended(self, found)

    def failed(self, driver: Work, reason: str, log: list[str]) -> None:
        driver.evaluations.piece_ended(self, failed=True)

    def left_alone(self, driver: Work) -> None:
        driver.evaluations.piece_ended(self, failed=True)


@dataclass(frozen=True)
class DiagnosisTask(Task):
    stage = "diagnose"
    diagnosis: Diagnosis

    @property
    def name(self) -> str:
        return self.diagnosis.record.removesuffix(".json").replace("/", "-")

    @property
    def cost(self) -> float:
        return diagnosis_passes(self.config, self.diagnosis.images)

    def stored(self, driver: Work) -> Sequence[Any] | None:
        found = stored_diagnosis(driver.store, self.diagnosis)
        return None if found is None else [found]

    def run(self, place: Workplace) -> str:
        setting = place.setting
        diagnose_trial(place.store, self.diagnosis, setting.data_dir, device=device(), commit=setting.commit)
        return "done"

    def after(self, driver: Work, found: Sequence[Any]) -> None:
        """Nothing waits for it."""

    def failed(self, driver: Work, reason: str, log: list[str]) -> None:
        """The trial itself is fine: the next run tries again."""

    def left_alone(self, driver: Work) -> None:
        """Nothing waits for it."""
