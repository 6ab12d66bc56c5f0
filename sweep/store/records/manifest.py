"""What a study consists of: its cells, searches, attacks and configurations."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from sweep.store import layout
from sweep.store.records.record import FileName, Part, Record, TrialName
from trainers import suites
from trainers.config import Recipe, Selection, TrialConfig


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
    attacks: tuple[str, ...] = ()  # in place of a suite
    epsilon: str = "8/255"
    images: int | None = None
    checkpoints: tuple[str, ...] = ("headline",)
    diagnostics: bool = False
    diagnosed: tuple[str, ...] = ()

    @property
    def wants_diagnostics(self) -> bool:
        return self.diagnostics or suites.wants_diagnostics(self.suite)


class ReplacedColumn(Part):
    """A column as a study had it before a run with other settings took its place. Its models may still be there."""

    label: str
    config: TrialConfig  # the seed aside
    trials: tuple[TrialName, ...]
    checkpoints: tuple[str, ...]  # that the study selected then


_PARTS: dict[str, type[BaseModel]] = {"recipe": Recipe, "selection": Selection}


def _with_shared_parts(configs: Any) -> Any:
    """Labels mostly differ in hyperparameters alone: a recipe and selection equal to those before are checked once."""
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
    except ValidationError:  # left as it is written, to be refused by its own place
        return {}


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
    config_by_label: Annotated[dict[str, TrialConfig], BeforeValidator(_with_shared_parts)] = {}  # the seed aside
    inner_attacks: dict[str, dict[str, str]] = {}  # by label, what is the method's own
    displays: dict[str, str] = {}  # how its data set and network are written
    command: str | None = None  # that ran it last
    replaced: tuple[ReplacedColumn, ...] = ()

    @property
    def path(self) -> str:
        return layout.manifest(self.name)

    @cached_property
    def evaluation(self) -> PlannedEvaluation:
        return PlannedEvaluation.model_validate(self.study.get("evaluation") or {})

    def checkpoints(self, label: str) -> list[str]:
        """Those of a label that are evaluated, the headline's own name in place of `headline`."""
        return self._checkpoints.get(label, [])

    @cached_property
    def _checkpoints(self) -> dict[str, list[str]]:
        wanted = self.evaluation.checkpoints
        return {label: config.selection.named(wanted) for label, config in self.config_by_label.items()}

    def evaluation_paths(self, cell: PlannedCell) -> list[str]:
        """The evaluations that a finished trial of this cell has."""
        if cell.trial is None:
            return []
        return [
            layout.evaluation_record(cell.trial, checkpoint, attack.id)
            for checkpoint in self.checkpoints(cell.label)
            for attack in self.attacks
        ]
