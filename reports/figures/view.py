"""What a figure asks of the records: one study's methods, in order, with their seeds' numbers in percent."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from reports.figures.style import MethodStyle, method_styles, plain
from reports.records import Diagnostics, Record, ReportData

CHECKPOINT_NAMES = {"best_test": "best epoch (on test)", "best_validation": "best epoch (on validation)"}


class Missing(Exception):
    """A figure's numbers are not in the store: why, and which command would make them."""

    def __init__(self, reason: str, command: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.command = command


@dataclass(frozen=True)
class MethodView:
    """One label of a study with its trials that ended; failed and missing ones have no numbers to draw."""

    label: str
    name: str
    method: str
    hyperparameters: dict[str, Any]
    style: MethodStyle
    trials: tuple[str, ...]
    last_epochs: tuple[Record, ...]
    study: StudyView

    @property
    def base(self) -> str:
        return self.method.partition("+")[0]

    def accuracies(self, attack: str, checkpoint: str | None = None) -> np.ndarray:
        """Per seed, in percent, at the study's own radius; empty when nothing was evaluated."""
        rows = self._evaluations(checkpoint or self.study.checkpoint)
        return np.array([100 * row.accuracy for row in rows if row.attack == attack])

    def phase_accuracies(self, phase: str) -> np.ndarray:
        """Per seed: who is left after that phase of AutoAttack."""
        rows = [row for row in self._evaluations(self.study.checkpoint) if row.attack == "autoattack"]
        return np.array([100 * row.phases[phase] for row in rows if phase in row.phases])

    def clean_accuracies(self) -> np.ndarray:
        found: dict[str, float] = {}
        for row in self._evaluations(self.study.checkpoint):
            value = row.accuracy if row.attack == "clean" else row.clean_accuracy
            if value is not None and not pd.isna(value):
                found.setdefault(row.trial, 100 * float(value))
        return np.array(list(found.values()))

    def by_logit_scale(self) -> dict[float, list[float]]:
        """Logit scale -> accuracies of the seeds."""
        scales: dict[float, list[float]] = {}
        for row in self._evaluations(self.study.checkpoint):
            # The strict count is another quantity under the same attack.
            if row.attack.startswith("logit-scaling-") and not row.settings.get("strict"):
                scales.setdefault(float(row.settings["alpha"]), []).append(100 * row.accuracy)
        return dict(sorted(scales.items()))

    def _evaluations(self, checkpoint: str) -> Iterator[Any]:
        for trial in self.trials:
            for row in self.study.evaluations.get((trial, checkpoint), ()):
                if row.attack == "clean" or row.epsilon == self.study.epsilon:
                    yield row

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

    def last(self, column: str) -> np.ndarray:
        """The column at the last epoch, per seed that recorded it."""
        values = [row.get(column) for row in self.last_epochs]
        return np.array([float(value) for value in values if isinstance(value, int | float)])

    def diagnostics(self, checkpoint: str) -> list[Diagnostics]:
        found = (self.study.diagnostics(trial, checkpoint) for trial in self.trials)
        return [item for item in found if item is not None]

    def summaries(self, key: str, checkpoint: str) -> np.ndarray:
        values = [item.summary.get(key) for item in self.diagnostics(checkpoint)]
        return np.array([float(value) for value in values if isinstance(value, int | float)])


class StudyView:
    """One study of the report's data; every value a figure may need is read once and kept."""

    def __init__(self, data: ReportData, name: str) -> None:
        manifest = data.manifests[name]
        self.data = data
        self.name = name
        self.title = plain(str(manifest.get("title") or name), 60)
        self.dataset = str(manifest["dataset"])
        self.epsilon = str(manifest.get("epsilon", "8/255"))
        self.checkpoint = str(manifest["checkpoint"])
        entries = manifest.get("searches") or []
        self.searches = [data.searches[entry["id"]] for entry in entries if entry["id"] in data.searches]
        self._curves: dict[str, pd.DataFrame] = {}
        self._diagnostics: dict[tuple[str, str], Diagnostics | None] = {}

    @cached_property
    def methods(self) -> list[MethodView]:
        cells = self.data.cells[self.data.cells["study"] == self.name]
        groups = list(cells.groupby("label", sort=False))
        styles = method_styles((str(label), str(group["method"].iloc[0])) for label, group in groups)
        methods = []
        for label, group in groups:
            ended = group[group["status"].isin(["done", "collapsed"])]
            first = group.iloc[0]
            methods.append(
                MethodView(
                    label=str(label),
                    name=plain(str(first["display"])),
                    method=str(first["method"]),
                    hyperparameters=_resolved(ended if len(ended) else group),
                    style=styles[str(label)],
                    trials=tuple(ended["trial"]),
                    last_epochs=tuple(row for row in ended["last_epoch"] if isinstance(row, dict)),
                    study=self,
                )
            )
        return methods

    @property
    def adversarial_methods(self) -> list[MethodView]:
        """Without standard training, whose robust accuracy near zero would squeeze all others into a corner."""
        return [method for method in self.methods if method.base != "st"]

    def display(self, label: str) -> str:
        return next((method.name for method in self.methods if method.label == label), plain(label))

    @cached_property
    def evaluations(self) -> dict[tuple[str, str], list[Any]]:
        wanted = {trial for method in self.methods for trial in method.trials}
        table = self.data.evaluations
        found: dict[tuple[str, str], list[Any]] = {}
        for row in table[table["trial"].isin(wanted)].itertuples(index=False):
            found.setdefault((str(row.trial), str(row.checkpoint)), []).append(row)
        return found

    def curve(self, trial: str) -> pd.DataFrame:
        if trial not in self._curves:
            self._curves[trial] = self.data.curve(trial)
        return self._curves[trial]

    def diagnostics(self, trial: str, checkpoint: str) -> Diagnostics | None:
        key = (trial, checkpoint)
        if key not in self._diagnostics:
            self._diagnostics[key] = self.data.diagnostics(trial, checkpoint)
        return self._diagnostics[key]

    @property
    def checkpoint_name(self) -> str:
        return CHECKPOINT_NAMES.get(self.checkpoint, f"{self.checkpoint} epoch")

    def command(self, *extra: str) -> str:
        return shlex.join(["python", "-m", "sweep.run", "--study", self.name, *extra])


def _resolved(cells: pd.DataFrame) -> dict[str, Any]:
    """The hyperparameters that the trial ran with; the manifest's where it has not run."""
    first = cells.iloc[0]
    config = first["config"]
    ran = config.get("hyperparameters") if isinstance(config, dict) else None
    return {**first["hyperparameters"], **(ran or {})}
