"""The base of a figure's file: its declaration, and a study's methods in the tables' order with their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from reports.analysis.results import Results
from reports.figures.style import MethodStyle, method_styles, plain
from reports.store.load import Diagnostics
from reports.tables.table import Key
from trainers.config import kept_epoch
from trainers.values import as_float

CHECKPOINT_NAMES = {"best_test": "best epoch on test", "best_validation": "best epoch on validation"}


@dataclass(frozen=True)
class ReportFigure:
    """Declaration of a figure.

    `draw` takes a `StudyView`, unless `needs_study` is False, and returns the picture and its caption; it raises
    `MissingResults` if the store lacks the numbers. `together` draws several studies in one picture (a paper's
    `together` names them). `narrow` draws the version for phones.
    """

    place: int  # position on the page
    name: str  # stem of its files
    title: str
    draw: Callable[..., tuple[Figure, str]]
    needs_study: bool = True
    together: Callable[..., tuple[Figure, str]] | None = None
    narrow: Callable[..., Figure] | None = None


class MissingResults(Exception):
    """Raised when the store lacks a figure's numbers, with the reason and the command that computes them."""

    def __init__(self, reason: str, command: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.command = command


@dataclass(frozen=True)
class MethodView:
    """One label of a study, with the names of its finished trials."""

    label: str
    name: str
    method: str
    hyperparameters: dict[str, Any]
    style: MethodStyle
    trials: tuple[str, ...]
    study: StudyView

    def number(self, hyperparameter: str) -> float | None:
        """Return the hyperparameter as a float, or None if it is missing or not a finite number."""
        value = self.hyperparameters.get(hyperparameter)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            return None
        return float(value)

    @property
    def base(self) -> str:
        return self.method.partition("+")[0]

    @property
    def adversarial(self) -> bool:
        return self.study.results.adversarial(self.study.name, self.label)

    def accuracies(self, measure: str, checkpoint: str | None = None) -> np.ndarray:
        """Return accuracies by seed in percent at the study's own radius. `measure` is an attack's name or clean."""
        return self.values(measure, checkpoint or self.study.checkpoint)

    def values(self, measure: str, checkpoint: str) -> np.ndarray:
        sample = self.study.results.cell(Key(self.study.name, self.label, measure, None, checkpoint)).sample
        return np.array(sample.values if sample is not None else ())

    def phase_accuracies(self, phase: str) -> np.ndarray:
        """Return the accuracies, by seed in percent, that remain after this phase of AutoAttack."""
        accuracies = []
        for trial in self.trials:
            path = self._evaluation(trial, "autoattack")
            if path is not None and phase in self.study.phases(path):
                accuracies.append(100 * self.study.phases(path)[phase])
        return np.array(accuracies)

    def distances(self) -> list[np.ndarray]:
        """Return by seed the distance from each test image at which the model is fooled.

        An image that AutoAttack fools at the study's radius counts as no farther than that radius, even if the
        minimum-distance attack found nothing that near.
        """
        study, by_seed = self.study, []
        for trial in self.trials:
            curve, autoattack = self._evaluation(trial, "curve"), self._evaluation(trial, "autoattack")
            distances = np.zeros(0) if curve is None else study.data.distances(curve)
            if curve is None or not distances.size:
                continue
            if autoattack is not None and _window(study, autoattack) == _window(study, curve):
                survived = study.data.verdicts(autoattack)
                if len(survived) == len(distances):
                    radius = np.float32(as_float(study.epsilon))
                    distances = np.where(survived, distances, np.minimum(distances, radius))
            by_seed.append(distances)
        return by_seed

    def _evaluation(self, trial: str, attack: str) -> str | None:
        """Return the path of the evaluation's record."""
        study = self.study
        score = study.results.evaluation(study.name, trial, study.checkpoint, attack, study.epsilon)
        return None if score is None else score.path

    def curves(self, column: str) -> list[np.ndarray]:
        """Return the column over the epochs by seed, NaN where not recorded. Curves without any value are omitted."""
        curves = []
        for trial in self.trials:
            table = self.study.curve(trial)
            if column in table:
                values = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=float)
                if np.isfinite(values).any():
                    curves.append(values)
        return curves

    def diagnostics(self, checkpoint: str) -> list[Diagnostics]:
        records = (self.study.diagnostics(trial, checkpoint) for trial in self.trials)
        return [record for record in records if record is not None]

    def summaries(self, key: str, checkpoint: str) -> np.ndarray:
        values = [record.summary.get(key) for record in self.diagnostics(checkpoint)]
        return np.array([float(value) for value in values if isinstance(value, int | float)])


class StudyView:
    """One study of the report's data. Every value is read once and cached."""

    def __init__(self, results: Results, name: str) -> None:
        self.results = results
        self.data = results.data
        self.name = name
        self.paper = results.paper if results.compares(name) else results.paper.bare()
        self.title = plain(results.title(name), 60)
        self.epsilon = results.epsilon(name)
        self.radius = results.radius_text(name)
        self.checkpoint = results.shown_checkpoint(name)
        records = self.data.searches
        self.searches = [records[search] for search in results.searches(name).values() if search in records]
        self._curves: dict[str, pd.DataFrame] = {}
        self._phases: dict[str, dict[str, float]] = {}
        self._diagnostics: dict[tuple[str, str], Diagnostics | None] = {}

    @cached_property
    def methods(self) -> list[MethodView]:
        labels = self.results.labels[self.name]
        pairs = [(label, self.results.methods[self.name, label]) for label in labels]
        styles = method_styles(pairs, self.paper.looks)
        methods = []
        for label, display in labels.items():
            done = tuple(planned.trial for planned in self.results.seeds(self.name, label) if planned.status == "done")
            methods.append(
                MethodView(
                    label=label,
                    name=plain(display),
                    method=self.results.methods[self.name, label],
                    hyperparameters=self.results.hyperparameters[self.name, label],
                    style=styles[label],
                    trials=done,
                    study=self,
                )
            )
        return methods

    @property
    def adversarial_methods(self) -> list[MethodView]:
        """The adversarially trained methods. Others have robust accuracy near zero, which would stretch the axes."""
        return [method for method in self.methods if method.adversarial]

    def display(self, label: str) -> str:
        return next((method.name for method in self.methods if method.label == label), plain(label))

    def phases(self, path: str) -> dict[str, float]:
        """Return the accuracy in [0, 1] after each phase of an AutoAttack evaluation."""
        if path not in self._phases:
            self._phases[path] = {
                name: float(survives.mean()) for name, survives in self.data.phase_verdicts(path).items()
            }
        return self._phases[path]

    def curve(self, trial: str) -> pd.DataFrame:
        if trial not in self._curves:
            self._curves[trial] = self.data.curve(trial)
        return self._curves[trial]

    def diagnostics(self, trial: str, checkpoint: str) -> Diagnostics | None:
        key = (trial, checkpoint)
        if key not in self._diagnostics:
            self._diagnostics[key] = self.data.diagnostics(trial, checkpoint, self.name)
        return self._diagnostics[key]

    @property
    def kept_epochs(self) -> list[str]:
        """The checkpoints epoch-N that the study evaluates or diagnoses, the earliest first."""
        evaluation = self.data.manifests[self.name].evaluation
        names = {name for name in (*evaluation.checkpoints, *evaluation.diagnosed) if kept_epoch(name)}
        return sorted(names, key=lambda name: kept_epoch(name) or 0)

    @property
    def checkpoint_name(self) -> str:
        return CHECKPOINT_NAMES.get(self.checkpoint, f"{self.checkpoint} epoch")

    def command(self, *extra: str) -> str:
        return self.data.run_command(self.name, *extra)


def _window(study: StudyView, path: str) -> Any:
    return study.data.settings(path).get("images")
