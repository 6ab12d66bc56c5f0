"""A store's results as pandas frames, and two methods compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from reports.export import hyperparameter_columns, results_frame
from reports.papers import load as load_paper
from reports.results import Results
from reports.significance import over_images, seed_verdicts
from reports.statistics import compare as compare_samples
from reports.store.load import ReportData
from reports.store.load import load as load_records
from reports.tables.table import Key
from sweep.errors import UserError
from sweep.store.base import Store
from trainers.spelling import nearest

CELL = ["study", "label", "display", "method", "seed", "trial", "status", "reason", "device", "wall_seconds"]


@dataclass(frozen=True)
class Compared:
    """`first` minus `second` in percent points. Without a p-value `undefined` says why: a single seed, no variation."""

    study: str
    first: str
    second: str
    measure: str
    difference: float
    low: float | None  # 95 % interval over seeds, Welch
    high: float | None
    p_value: float | None  # Welch, two-sided, of this comparison alone
    seeds: tuple[int, int]
    undefined: str = ""
    images_low: float | None = None  # 95 % interval over test images, on the seeds that both have
    images_high: float | None = None


class Frames:
    """The results of some studies of a store.

    cells        one row per study, label and seed, run or not; hyperparameters as columns hyperparameter_NAME
    evaluations  one row per trial, checkpoint and attack, with `epsilon` as text and `epsilon_value` as a number,
                 `norm`, and `accuracy` in [0, 1]; a trial without any evaluation has one row with holes
    problems     records that were left out, and why
    """

    def __init__(self, data: ReportData) -> None:
        self.data = data

    def __repr__(self) -> str:
        studies = ", ".join(self.data.manifests) or "none"
        counts = f"{len(self.data.cells)} cells, {len(self.data.evaluations)} evaluations"
        return f"<Frames of {studies} in {self.data.store.uri}: {counts}; curves() and verdicts() too>"

    @cached_property
    def cells(self) -> pd.DataFrame:
        own = self.data.cells
        return pd.concat([own[CELL], hyperparameter_columns(own["hyperparameters"])], axis=1)

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        return results_frame(self.data)

    @property
    def problems(self) -> pd.DataFrame:
        return pd.DataFrame([vars(one) for one in self.data.problems], columns=["path", "reason"])

    def curves(self, study: str | None = None, label: str | None = None) -> pd.DataFrame:
        """One row per trial and epoch: losses and accuracies as they were recorded while training."""
        parts = []
        for row in _chosen(self.cells, study=study, label=label).to_dict("records"):
            curve = self.data.curve(row["trial"])
            if len(curve):
                curve.insert(0, "trial", row["trial"])
                for place, name in enumerate(("study", "label", "seed")):
                    curve.insert(place, name, row[name])
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
        """One row per evaluation of this attack and test image: whether the model is right on it under the attack.

        Of `curve` also the distance at which it was fooled.
        """
        wanted = {"attack": attack, "checkpoint": checkpoint, "norm": norm, "epsilon": epsilon}
        paths = {path: settings for path, settings in zip(*_columns(self.data.evaluations), strict=True)}
        joined = self.evaluations.merge(
            self.data.evaluations[["trial", "checkpoint", "attack_id", "path"]],
            on=["trial", "checkpoint", "attack_id"],
        )
        parts = []
        for row in _chosen(joined, study=study, label=label, **wanted).to_dict("records"):
            correct = self.data.verdicts(row["path"])
            first = (paths[row["path"]].get("images") or [0])[0]
            names = ("study", "label", "seed", "checkpoint", "attack", "norm", "epsilon", "epsilon_value")
            images = range(first, first + len(correct))
            part = pd.DataFrame({**{name: row[name] for name in names}, "image": images, "correct": correct})
            distances = self.data.distances(row["path"])
            parts.append(part.assign(distance=distances) if distances.size else part)
        if not parts:
            known = sorted(set(self.data.evaluations["attack"]))
            raise UserError(f"no evaluation with {attack!r} fits{nearest(attack, known)} there are: {', '.join(known)}")
        return pd.concat(parts, ignore_index=True)

    def compare(self, study: str, first: str, second: str, measure: str = "autoattack") -> Compared:
        """Two labels of a study at its own checkpoint and radius; `measure` is an attack's name or clean."""
        results = Results(self.data, load_paper())
        if study not in results.labels:
            raise UserError(
                f"no study {study!r}{nearest(study, results.labels)} there are: {', '.join(results.labels)}"
            )
        cells = []
        for label in (first, second):
            if label not in results.labels[study]:
                known = list(results.labels[study])
                raise UserError(f"{study} has no label {label!r}{nearest(label, known)} it has: {', '.join(known)}")
            cell = results.cell(Key(study, label, measure))
            if cell.sample is None:
                shown = ", ".join(sorted({name for name, _ in results.attacks(study, results.shown_checkpoint(study))}))
                raise UserError(f"{study}/{label} has no {measure!r} yet; evaluated with: {shown or 'nothing'}")
            cells.append(cell)
        samples = [cell.sample for cell in cells if cell.sample is not None]
        found = compare_samples(samples[0], samples[1])
        images = over_images(*(seed_verdicts(results, cell) for cell in cells))
        return Compared(
            study,
            first,
            second,
            measure,
            found.difference,
            found.low,
            found.high,
            found.welch,
            (samples[0].n, samples[1].n),
            found.undefined,
            None if images is None else images.low,
            None if images is None else images.high,
        )


def load(store: Store | str | Path = "store", studies: Iterable[str] | None = None) -> Frames:
    """The results of these studies, or of all studies of a store: a folder, or s3://bucket/prefix."""
    return Frames(load_records(store, studies))


def _columns(evaluations: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    return evaluations["path"], evaluations["settings"]


def _chosen(frame: pd.DataFrame, **wanted: str | None) -> pd.DataFrame:
    for name, value in wanted.items():
        if value is not None:
            frame = frame[frame[name] == value]
    return frame
