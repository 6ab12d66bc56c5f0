"""The manifest of a study: its cells, searches, attacks and configurations."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from sweep.store import layout
from sweep.store.records.record import FileName, Part, Record, TrialName
from trainers.attacks.scoring import suites
from trainers.config import Recipe, Selection, TrialConfig


class PlannedCell(Part):
    """One cell of a study. It has no trial until a search has chosen its hyperparameters."""

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
    """The part of a study's `evaluation` section that determines its stored results."""

    suite: str | None = None
    attacks: tuple[str, ...] = ()  # instead of a suite
    epsilon: str = "8/255"
    images: int | None = None
    checkpoints: tuple[str, ...] = ("headline",)
    diagnostics: bool = False
    diagnosed: tuple[str, ...] = ()

    @property
    def wants_diagnostics(self) -> bool:
        return self.diagnostics or suites.wants_diagnostics(self.suite)


class ReplacedColumn(Part):
    """A column of a study that was replaced by a run with other settings. Its models may still be stored."""

    label: str
    config: TrialConfig  # ignoring the seed
    trials: tuple[TrialName, ...]
    checkpoints: tuple[str, ...]  # those that the study selected then


_PARTS: dict[str, type[BaseModel]] = {"recipe": Recipe, "selection": Selection}


def _with_shared_parts(configs: Any) -> Any:
    """Validate a recipe and selection only if they differ from those of the previous label, which is rare."""
    if not isinstance(configs, dict):
        return configs
    found, written, checked = dict(configs), None, {}
    for label, config in configs.items():
        if isinstance(config, dict):
            parts = {name: config[name] for name in _PARTS if name in config}
            if parts != written:
                written, checked = parts, _checked(parts)
            found[label] = config | checked
    return found


def _checked(parts: dict[str, Any]) -> dict[str, BaseModel]:
    try:
        return {name: _PARTS[name].model_validate(part) for name, part in parts.items()}
    except ValidationError:  # keep the raw values, so that validation reports the fault at its location
        return {}


class Manifest(Record):
    """The current contents of a study, for programs that read its results."""

    kind = "study"
    name: Annotated[str, Field(pattern=r"^[\w-]+$")]
    title: str = ""
    study: dict[str, Any] = {}  # from its file and options
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
    config_by_label: Annotated[dict[str, TrialConfig], BeforeValidator(_with_shared_parts)] = {}  # ignoring seeds
    inner_attacks: dict[str, dict[str, str]] = {}  # by label: start, mode and trains_on of the method
    displays: dict[str, str] = {}  # display names of its data set and network
    command: str | None = None  # the command that last ran the study
    replaced: tuple[ReplacedColumn, ...] = ()

    @property
    def path(self) -> str:
        return layout.manifest(self.name)

    @cached_property
    def evaluation(self) -> PlannedEvaluation:
        return PlannedEvaluation.model_validate(self.study.get("evaluation") or {})

    def checkpoints(self, label: str) -> list[str]:
        """Return the evaluated checkpoints of a label, with `headline` replaced by the name of that checkpoint."""
        return self._checkpoints.get(label, [])

    @cached_property
    def _checkpoints(self) -> dict[str, list[str]]:
        wanted = self.evaluation.checkpoints
        return {label: config.selection.named(wanted) for label, config in self.config_by_label.items()}

    def evaluation_paths(self, cell: PlannedCell) -> list[str]:
        """Return the paths of the evaluations of this cell once its trial is finished."""
        if cell.trial is None:
            return []
        return [
            layout.evaluation_record(cell.trial, checkpoint, attack.id)
            for checkpoint in self.checkpoints(cell.label)
            for attack in self.attacks
        ]
