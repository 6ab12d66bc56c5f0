"""Expansion of a study into its trials, and their state in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from sweep.store import layout
from sweep.store.base import Store, TrialLook
from sweep.store.manifests import united
from sweep.store.records.manifest import Manifest, PlannedAttack, PlannedCell, PlannedSearch
from sweep.studies.model import Study, searched
from sweep.trials.identity import search_id, trial_hashes
from trainers import composition
from trainers.attack import AttackSettings, EvaluationAttack
from trainers.attacks.scoring import suites
from trainers.config import TrialConfig
from trainers.data import dataset_facts
from trainers.plugins import declarations, registry


@dataclass(frozen=True)
class Cell:
    """One trial of a study. `trial` is None until a search has chosen its hyperparameters."""

    label: str
    display: str
    method: str
    seed: int
    column: TrialConfig  # shared by all cells of the label; its seed may be that of any of them
    trial: str | None

    @cached_property
    def config(self) -> TrialConfig:
        # A copy skips validation: validating ten thousand equal configurations would take seconds.
        return self.column if self.seed == self.column.seed else self.column.model_copy(update={"seed": self.seed})

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Return the hyperparameters, or {} until a search has chosen them.

        The study's own values are not returned in that case, because they would be mistaken for the search's choice.
        """
        return self.column.hyperparameters if self.trial else {}


def expand(study: Study, chosen: Mapping[str, Mapping[str, Any]] | None = None) -> list[Cell]:
    """Return all trials of a study, column by column.

    `chosen` holds the hyperparameters that finished searches chose, by label. A search that chose the study's own
    values gives two columns with the same trials.
    """
    chosen = chosen or {}
    seeds = list(study.seeds)
    cells = []
    for column, label in study.columns().items():
        found = chosen.get(label) if column != label else None
        config = study.config(label, found)
        waits = column != label and label not in chosen
        hashes: list[str | None] = [None] * len(seeds) if waits else [*trial_hashes(config, seeds)]
        shown = display(study, label) + (", searched" if column != label else "")
        for seed, trial in zip(seeds, hashes, strict=True):
            cells.append(Cell(column, shown, config.method, seed, config, trial))
    return cells


def configs(cells: list[Cell]) -> Iterator[tuple[str, TrialConfig]]:
    """Yield each label once, with the configuration that its cells share except for the seed."""
    return ((label, cell.column) for label, cell in {cell.label: cell for cell in cells}.items())


def display(study: Study, label: str) -> str:
    """Return the column name of a label; a label that differs from its method is appended to keep names distinct."""
    entry = study.methods[label]
    apart = entry.method is not None and entry.method != label
    return entry.display or composition.display_name(study.method(label)) + (f" ({label})" if apart else "")


def chosen_values(study: Study, store: Store) -> dict[str, dict[str, Any]]:
    """Return the hyperparameters that finished searches chose, by label."""
    chosen = {}
    for label in study.searches():
        record = store.search_record(search_id(study, label))
        if record is not None and record.status == "done" and record.chosen is not None:
            chosen[label] = dict(record.chosen)
    return chosen


def stored_cells(study: Study, store: Store) -> list[Cell]:
    """Return all trials of a study, with the values that its finished searches chose."""
    return expand(study, chosen_values(study, store))


def stored_trials(study: Study, store: Store) -> Iterator[str]:
    """Yield all trials of the study's tables and searches, including those of other runs under its name."""
    before = store.usable(Manifest, layout.manifest(study.name))
    yield from (cell.trial for cell in united(before, manifest(study, stored_cells(study, store))).cells if cell.trial)
    for label in study.searches():
        search = store.search_record(search_id(study, label))
        for candidate in search.candidates if search else ():
            yield from (one.trial for one in candidate.runs or (candidate,))


def states(cells: list[Cell], store: Store, looks: Mapping[str, TrialLook] | None = None) -> list[str]:
    """Return the state of each cell: done, collapsed, failed, broken, missing, or waiting (for its search).

    Pass `looks` if the store's trials have been read already, to avoid reading them again.
    """
    stored = store.trial_states() if looks is None else {name: look.state for name, look in looks.items()}
    return ["waiting" if c.trial is None else stored.get(layout.short(c.trial), "missing") for c in cells]


def evaluation_attacks(study: Study) -> list[EvaluationAttack]:
    wanted, facts = study.evaluation, dataset_facts(study.dataset)
    settings = AttackSettings(
        epsilon=wanted.epsilon,
        norm=study.evaluation_norm,
        classes=facts.classes,
        shape=facts.shape,
        batch_size=wanted.batch_size,
        images=None if wanted.images is None else (0, wanted.images),
    )
    return _attacks(wanted.attacks or suites.names_of(wanted.suite or "main"), settings)


@cache
def _attacks(names: tuple[str, ...], settings: AttackSettings) -> list[EvaluationAttack]:
    return suites.attacks(names, settings)


def evaluated_checkpoints(study: Study, config: TrialConfig) -> list[str]:
    """Return the checkpoints of a trial to evaluate, with `headline` replaced by the checkpoint it stands for."""
    return config.selection.named(study.evaluation.checkpoints)


def diagnosed_checkpoints(study: Study, config: TrialConfig) -> list[str]:
    """Return the checkpoints whose margins and gradients are measured.

    These are the evaluated ones, those listed under `diagnosed`, and the last one, as in the paper.
    """
    if not (study.evaluation.diagnostics or suites.wants_diagnostics(study.evaluation.suite)):
        return []
    return config.selection.named([*study.evaluation.checkpoints, *study.evaluation.diagnosed, "last"])


def manifest(study: Study, cells: list[Cell], command: str | None = None) -> Manifest:
    """Return the manifest of a study, from which reports are made.

    A cell whose search has not chosen yet has no trial and no hyperparameters.
    """
    return Manifest(
        name=study.name,
        title=study.title,
        command=command,
        study=study.model_dump(mode="json"),
        dataset=study.dataset,
        model=study.model,
        epsilon=study.evaluation.epsilon,
        norm=study.evaluation_norm,
        protocol=study.selection.protocol,
        checkpoint=study.selection.headline,
        seeds=study.seeds,
        cells=tuple(
            PlannedCell(
                label=cell.label,
                display=cell.display,
                method=cell.method,
                hyperparameters=cell.hyperparameters,
                seed=cell.seed,
                trial=cell.trial,
            )
            for cell in cells
        ),
        searches=tuple(PlannedSearch(label=searched(label), id=search_id(study, label)) for label in study.searches()),
        attacks=tuple(
            PlannedAttack(id=a.id, name=a.name, epsilon=a.epsilon, norm=a.norm) for a in evaluation_attacks(study)
        ),
        config_by_label={
            label: cell.column.model_copy(update={"seed": 0, "hyperparameters": cell.hyperparameters})
            for label, cell in {cell.label: cell for cell in cells}.items()
        },
        inner_attacks={column: _inner_attack(study.method(label)) for column, label in study.columns().items()},
        displays={
            "dataset": registry.DATASETS.get(study.dataset).display,
            "model": declarations.network(study.model).display,
        },
    )


def _inner_attack(name: str) -> dict[str, str]:
    """Return the method's defaults: start of the inner attack, BatchNorm mode, and the images that the loss sees."""
    method = composition.method_of(name)
    return {"start": method.start, "mode": method.mode, "trains_on": method.trains_on}
