"""Results of a store as pandas frames, and comparisons of two methods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from reports.analysis.results import Results
from reports.analysis.significance import over_images, seed_verdicts
from reports.analysis.statistics import compare as compare_samples
from reports.export import hyperparameter_columns, results_frame
from reports.papers import load as load_paper
from reports.store.load import ReportData
from reports.store.load import load as load_records
from reports.tables.table import Key
from sweep.engine.trial_table import table_of
from sweep.errors import UserError
from sweep.store.base import Store
from trainers.plugins.spelling import nearest

CELL = ["study", "label", "display", "method", "seed", "trial", "status", "reason", "device", "wall_seconds"]


@dataclass(frozen=True)
class Compared:
    """The difference `first` minus `second`, in percentage points.

    Without a p-value, `undefined` gives the reason: a single seed, or no variation.
    """

    study: str
    first: str
    second: str
    measure: str
    difference: float
    low: float | None  # 95 % interval over seeds, Welch
    high: float | None
    p_value: float | None  # Welch, two-sided, not corrected for other comparisons
    seeds: tuple[int, int]
    undefined: str = ""
    images_low: float | None = None  # 95 % interval over test images, for the seeds that both labels have
    images_high: float | None = None


class Frames:
    """The results of some studies of a store.

    cells        one row per study, label and seed, finished or not; hyperparameters are columns hyperparameter_NAME
    evaluations  one row per trial, checkpoint and attack, with `epsilon` as text and `epsilon_value` as a number,
                 `norm`, and `accuracy` in [0, 1]; a trial without evaluations has one row with NaN
    problems     omitted records, with the reason
    trials       one row per Ray Tune trial of the run that returned this, with its metrics; empty after `load`, or if
                 everything was already stored
    """

    def __init__(self, data: ReportData, trials: pd.DataFrame | None = None) -> None:
        self.data = data
        self.trials = table_of([]) if trials is None else trials

    def __repr__(self) -> str:
        studies = ", ".join(self.data.manifests) or "none"
        counts = f"{len(self.data.cells)} cells, {len(self.data.evaluations)} evaluations"
        return f"<Frames of {studies} in {self.data.store.uri}: {counts}; see also curves() and verdicts()>"

    @cached_property
    def cells(self) -> pd.DataFrame:
        own = self.data.cells
        return pd.concat([own[CELL], hyperparameter_columns(own["hyperparameters"])], axis=1)

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        return results_frame(self.data)

    @property
    def problems(self) -> pd.DataFrame:
        return pd.DataFrame([vars(problem) for problem in self.data.problems], columns=["path", "reason"])

    def curves(self, study: str | None = None, label: str | None = None) -> pd.DataFrame:
        """Return losses and accuracies recorded during training, one row per trial and epoch.

        Args:
            study: Only trials of this study.
            label: Only trials with this label.
        """
        parts = []
        for row in _chosen(self.cells, study=study, label=label).to_dict("records"):
            curve = self.data.curve(row["trial"])
            if len(curve):
                curve.insert(0, "trial", row["trial"])
                for position, name in enumerate(("study", "label", "seed")):
                    curve.insert(position, name, row[name])
                parts.append(curve)
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["study", "label", "seed"])

    def verdicts(
        self,
        attack: str,
        *,
        study: str | None = None,
        label: str | None = None,
        checkpoint: str | None = None,
        norm: str | None = None,
        epsilon: str | None = None,
    ) -> pd.DataFrame:
        """Return one row per evaluation and test image; `correct` is True if the model survives the attack.

        For the attack `curve`, the column `distance` is the distance at which the model was fooled. The other arguments
        select evaluations.

        Raises:
            UserError: If no evaluation matches.
        """
        wanted = {"attack": attack, "checkpoint": checkpoint, "norm": norm, "epsilon": epsilon}
        settings_by_path = dict(zip(self.data.evaluations["path"], self.data.evaluations["settings"], strict=True))
        joined = self.evaluations.merge(
            self.data.evaluations[["trial", "checkpoint", "attack_id", "path"]],
            on=["trial", "checkpoint", "attack_id"],
        )
        parts = []
        for row in _chosen(joined, study=study, label=label, **wanted).to_dict("records"):
            correct = self.data.verdicts(row["path"])
            first = (settings_by_path[row["path"]].get("images") or [0])[0]
            names = ("study", "label", "seed", "checkpoint", "attack", "norm", "epsilon", "epsilon_value")
            images = range(first, first + len(correct))
            part = pd.DataFrame({**{name: row[name] for name in names}, "image": images, "correct": correct})
            distances = self.data.distances(row["path"])
            parts.append(part.assign(distance=distances) if distances.size else part)
        if not parts:
            attacks = sorted(set(self.data.evaluations["attack"]))
            raise UserError(
                f"no evaluation with {attack!r} matches{nearest(attack, attacks)} the store has: {', '.join(attacks)}"
            )
        return pd.concat(parts, ignore_index=True)

    def compare(self, study: str, first: str, second: str, measure: str = "autoattack") -> Compared:
        """Compare two labels of a study at its own checkpoint and radius.

        Args:
            measure: An attack's name, or clean.

        Raises:
            UserError: If the study, a label or the numbers are missing.
        """
        results = Results(self.data, load_paper())
        if study not in results.labels:
            raise UserError(
                f"no study {study!r}{nearest(study, results.labels)} the store has: {', '.join(results.labels)}"
            )
        cells = []
        for label in (first, second):
            if label not in results.labels[study]:
                labels = list(results.labels[study])
                raise UserError(f"{study} has no label {label!r}{nearest(label, labels)} it has: {', '.join(labels)}")
            cell = results.cell(Key(study, label, measure))
            if cell.sample is None:
                attacks = sorted({name for name, _ in results.attacks(study, results.shown_checkpoint(study))})
                raise UserError(
                    f"{study}/{label} has no {measure!r} yet; evaluated with: {', '.join(attacks) or 'nothing'}"
                )
            cells.append(cell)
        samples = [cell.sample for cell in cells if cell.sample is not None]
        comparison = compare_samples(samples[0], samples[1])
        images = over_images(*(seed_verdicts(results, cell) for cell in cells))
        return Compared(
            study,
            first,
            second,
            measure,
            comparison.difference,
            comparison.low,
            comparison.high,
            comparison.welch,
            (samples[0].n, samples[1].n),
            comparison.undefined,
            None if images is None else images.low,
            None if images is None else images.high,
        )


def load(store: Store | str | Path = "store", studies: Iterable[str] | None = None) -> Frames:
    """Load the results of a store: a folder or s3://bucket/prefix. Load all studies unless some are named."""
    return Frames(load_records(store, studies))


def _chosen(frame: pd.DataFrame, **wanted: str | None) -> pd.DataFrame:
    for name, value in wanted.items():
        if value is not None:
            frame = frame[frame[name] == value]
    return frame
