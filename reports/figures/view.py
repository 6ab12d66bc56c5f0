"""What a figure's file builds on: its declaration, and one study's methods in the tables' order, with their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from reports.figures.style import MethodStyle, method_styles, plain
from reports.results import Results
from reports.store.load import Diagnostics
from reports.tables.table import Key
from trainers.config import kept_epoch
from trainers.values import as_float

CHECKPOINT_NAMES = {"best_test": "best epoch on test", "best_validation": "best epoch on validation"}


@dataclass(frozen=True)
class ReportFigure:
    """`draw` gives the picture and its caption, from a study's view if it needs one, or raises `Missing`.

    `together` draws the same of several studies in one picture; which studies, a paper's `together` says. `narrow`
    draws it again for the page on a phone.
    """

    place: int  # on the page, among the others
    name: str  # of its files
    title: str
    draw: Callable[..., tuple[Figure, str]]
    needs_study: bool = True
    together: Callable[..., tuple[Figure, str]] | None = None
    narrow: Callable[..., Figure] | None = None


class Missing(Exception):
    """A figure's numbers are not in the store: why, and which command would make them."""

    def __init__(self, reason: str, command: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.command = command


@dataclass(frozen=True)
class MethodView:
    """One label of a study. `trials` are those that are done: only they have numbers to draw."""

    label: str
    name: str
    method: str
    hyperparameters: dict[str, Any]
    style: MethodStyle
    trials: tuple[str, ...]
    study: StudyView

    def number(self, hyperparameter: str) -> float | None:
        """None where it has none, or one that is no number."""
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
        """Per seed, in percent, at the study's own radius; `measure` is an attack's name or clean."""
        return self.values(measure, checkpoint or self.study.checkpoint)

    def values(self, measure: str, checkpoint: str) -> np.ndarray:
        sample = self.study.results.cell(Key(self.study.name, self.label, measure, None, checkpoint)).sample
        return np.array(sample.values if sample is not None else ())

    def phase_accuracies(self, phase: str) -> np.ndarray:
        """Per seed: who is left after that phase of AutoAttack."""
        study, found = self.study, []
        for trial in self.trials:
            one = study.results.evaluation(study.name, trial, study.checkpoint, "autoattack", study.epsilon)
            if one is not None and phase in study.phases(one.path):
                found.append(100 * study.phases(one.path)[phase])
        return np.array(found)

    def distances(self) -> list[np.ndarray]:
        """Per seed: how far from each test image the model was fooled. What AutoAttack fooled at the radius of the
        study lies no farther, also where the search for the nearest passed it by."""
        study, found = self.study, []
        for trial in self.trials:
            one, other = (
                study.results.evaluation(study.name, trial, study.checkpoint, attack, study.epsilon)
                for attack in ("curve", "autoattack")
            )
            distances = np.zeros(0) if one is None else study.data.distances(one.path)
            if one is None or not distances.size:
                continue
            if other is not None and _window(study, other.path) == _window(study, one.path):
                survived = study.data.verdicts(other.path)
                if len(survived) == len(distances):
                    radius = np.float32(as_float(study.epsilon))
                    distances = np.where(survived, distances, np.minimum(distances, radius))
            found.append(distances)
        return found

    def curves(self, column: str) -> list[np.ndarray]:
        """Per seed: the column over the epochs, NaN where it was not recorded; curves without any value left out."""
        curves = []
        for trial in self.trials:
            table = self.study.curve(trial)
            if column in table:
                values = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=float)
                if np.isfinite(values).any():
                    curves.append(values)
        return curves

    def diagnostics(self, checkpoint: str) -> list[Diagnostics]:
        found = (self.study.diagnostics(trial, checkpoint) for trial in self.trials)
        return [item for item in found if item is not None]

    def summaries(self, key: str, checkpoint: str) -> np.ndarray:
        values = [item.summary.get(key) for item in self.diagnostics(checkpoint)]
        return np.array([float(value) for value in values if isinstance(value, int | float)])


class StudyView:
    """One study of the report's data; every value a figure may need is read once and kept."""

    def __init__(self, results: Results, name: str) -> None:
        self.results = results
        self.data = results.data
        self.name = name
        self.paper = results.paper if results.compares(name) else results.paper.bare()
        self.title = plain(results.title(name), 60)
        self.epsilon = results.epsilon(name)
        self.radius = results.radius_text(name)
        self.checkpoint = results.shown_checkpoint(name)
        known = self.data.searches
        self.searches = [known[search] for search in results.searches(name).values() if search in known]
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
            done = tuple(one.trial for one in self.results.seeds(self.name, label) if one.status == "done")
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
        """Without those whose robust accuracy near zero would squeeze all others into a corner."""
        return [method for method in self.methods if method.adversarial]

    def display(self, label: str) -> str:
        return next((method.name for method in self.methods if method.label == label), plain(label))

    def phases(self, path: str) -> dict[str, float]:
        """Accuracy after each phase of an AutoAttack evaluation."""
        if path not in self._phases:
            self._phases[path] = {name: float(left.mean()) for name, left in self.data.phase_verdicts(path).items()}
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
        """The checkpoints epoch-N that the study asks for, the earliest first."""
        asked = self.data.manifests[self.name].evaluation
        names = {name for name in (*asked.checkpoints, *asked.diagnosed) if kept_epoch(name)}
        return sorted(names, key=lambda name: kept_epoch(name) or 0)

    @property
    def checkpoint_name(self) -> str:
        return CHECKPOINT_NAMES.get(self.checkpoint, f"{self.checkpoint} epoch")

    def command(self, *extra: str) -> str:
        return self.data.run_command(self.name, *extra)


def _window(study: StudyView, path: str) -> Any:
    return study.data.settings(path).get("images")
