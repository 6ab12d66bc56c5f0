"""Settings in which a stored study departs from the study shipped under its name, which has the paper's settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from reports.analysis.results import Results
from reports.comparison.protocol import NAMES, WHOLE, setting_text, whole
from reports.tables.table import Table, TableCell
from sweep import studies
from sweep.store.encoding import canonical
from sweep.studies.check_search import SEARCHED
from sweep.studies.written import written_settings, written_study
from trainers.data import dataset_facts, dataset_names

# Margins are measured on training images at the last epoch. Test images and checkpoint selection do not affect them.
ON_TRAINING_IMAGES = ("margin", "margin_ratio")
OF_THE_TEST = ("test_images", "selection")
# Hyperparameters are compared separately, because a search may have chosen them.
IGNORED = ("seed", "hyperparameters")
COMPARED_WHOLE = ("recipe.schedule", "recipe.augmentation")
PARTS = {"selection.protocol": "protocol", "selection.validation": "training images held out"}


class Departures:
    """The departures of cells in words, such as 'epochs 1 instead of 200'.

    A study or label that is not shipped has none.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self._by_label: dict[tuple[str, str], dict[str, str]] = {}

    def of(self, cell: TableCell) -> tuple[str, ...]:
        """Return the departures of one cell. An empty cell has none."""
        if cell.sample is None or not cell.label:
            return ()
        key = cell.key
        if key.measure in ON_TRAINING_IMAGES:
            ratio = self.results.paper.margin_ratio if key.measure == "margin_ratio" else None
            labels = [cell.label, ratio.under.label] if ratio is not None else [cell.label]
            texts = [
                text
                for label in labels
                for name, text in self._of_label(key.study, label).items()
                if moves(name, key.measure)
            ]
            return tuple(dict.fromkeys(texts))
        departures = dict(self._of_label(key.study, cell.label))
        if self._shipped(key.study, cell.label):
            departures |= self._of_evaluation(cell, "test_images" in departures)
        return tuple(departures.values())

    def covers(self, study: str, label: str) -> bool:
        """Return whether this label's hyperparameters count as settings. Those that a search chose do not."""
        return shipped(study, label) is not None and self.results.tuning(study, label) is None

    def mark(self, table: Table) -> Table:
        """Return the table with the departures of each cell filled in."""
        blocks = tuple(
            replace(
                block,
                rows=tuple(
                    replace(row, cells=tuple(replace(cell, departs=self.of(cell)) for cell in row.cells))
                    for row in block.rows
                ),
            )
            for block in table.blocks
        )
        return replace(table, blocks=blocks)

    def sentences(self, cells: Iterable[TableCell]) -> list[str]:
        """Return one sentence per study: its departures, and the methods that have them."""
        by_study: dict[str, dict[str, tuple[str, ...]]] = {}
        for cell in cells:
            if cell.departs:
                name = self.results.labels[cell.key.study][cell.label]
                by_method = by_study.setdefault(cell.key.study, {})
                by_method[name] = tuple(dict.fromkeys([*by_method.get(name, ()), *cell.departs]))
        return [f"{study}: {joined(by_method)}." for study, by_method in by_study.items()]

    def _shipped(self, study: str, label: str) -> bool:
        return label in self.results.configs(study) and shipped(study, label) is not None

    def _of_label(self, study: str, label: str) -> dict[str, str]:
        if (study, label) not in self._by_label:
            self._by_label[study, label] = self._compare(study, label)
        return self._by_label[study, label]

    def _compare(self, study: str, label: str) -> dict[str, str]:
        """Return the departures of a label's trainings by setting."""
        tuned = self.results.tuning(study, label)
        departures: dict[str, str] = {} if tuned is None else {"search": f"hyperparameters {tuned}; the others are not"}
        # A searched column has its own label. Its settings are those of the original one, except for the values found.
        theirs = shipped(study, label) or shipped(study, label.removesuffix(SEARCHED))
        if theirs is None:
            return departures
        ours = self.results.configs(study).get(label)
        if ours is not None:
            departures |= differing(theirs, ours.model_dump(mode="json"))
        if self.covers(study, label):
            used = self.results.hyperparameters.get((study, label), {})
            for name, value in theirs["hyperparameters"].items():
                if name in used and canonical(used[name]) != canonical(value):
                    departures[f"hyperparameters.{name}"] = f"{name} {used[name]} instead of {value}"
        return departures

    def _of_evaluation(self, cell: TableCell, on_fewer: bool) -> dict[str, str]:
        """Return the departures of a cell's evaluation by setting.

        on_fewer: the study itself uses fewer test images, which is a departure already.
        """
        key = cell.key
        departures: dict[str, str] = {}
        ours, theirs = self.results.epsilon(key.study), written_study(key.study).evaluation.epsilon
        if key.epsilon is None and key.measure != "clean" and ours != theirs:
            departures["evaluation.epsilon"] = f"attack radius {ours} instead of {theirs}"
        dataset = self.results.data.manifests[key.study].dataset
        images = self.results.images([cell])
        if not on_fewer and images and dataset in dataset_names():
            all_images = dataset_facts(dataset).test_images
            if min(images) != all_images:
                departures["evaluation.images"] = f"test images attacked {min(images):,} instead of {all_images:,}"
        return departures


def joined(by_method: Mapping[str, Iterable[str]]) -> str:
    """Return the departures of each method as one text. Methods with the same departures are named together."""
    methods: dict[str, list[str]] = {}
    for name, texts in by_method.items():
        for text in texts:
            methods.setdefault(text, []).append(name)
    together: dict[tuple[str, ...], list[str]] = {}
    for text, names in methods.items():
        together.setdefault(tuple(names), []).append(text)
    return "; ".join(f"{'; '.join(texts)} ({', '.join(names)})" for names, texts in together.items())


def moves(setting: str, measure: str) -> bool:
    """Return whether a setting can affect this measure.

    Held-out images count for every measure, because they are not trained on.
    """
    if measure not in ON_TRAINING_IMAGES or setting.startswith("selection.validation"):
        return True
    return setting.split(".")[0] not in OF_THE_TEST


def shipped(study: str, label: str) -> dict[str, Any] | None:
    """Return the configuration of a label in the shipped study of that name, or None."""
    if study not in studies.shipped() or label not in written_study(study).labels:
        return None
    return written_settings(study, label)


def differing(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, str]:
    """Return, for each setting that differs, how the second configuration departs from the first.

    Hyperparameters and seed are ignored.
    """
    departures: dict[str, str] = {}
    _walk(canonical(whole(theirs)), canonical(whole(ours)), "", departures)
    if theirs["recipe"]["steps"] and "recipe.steps" not in departures:
        departures.pop("recipe.epochs", None)  # the number of steps ends the training and overrides the epochs
    return departures


def _walk(theirs: Any, ours: Any, key: str, departures: dict[str, str]) -> None:
    """Add departures below `key`. A setting that one side lacks is skipped: old records lack newer settings."""
    if key in IGNORED or theirs == ours:
        return
    if isinstance(theirs, dict) and isinstance(ours, dict) and key not in COMPARED_WHOLE:
        for name in theirs:
            if name in ours:
                _walk(theirs[name], ours[name], f"{key}.{name}" if key else name, departures)
        return
    head, _, part = key.partition(".")
    if key in PARTS:
        name = PARTS[key]
    elif head in WHOLE and part:
        name = f"{NAMES[head]}: {part.replace('_', ' ')}"
    else:
        name = NAMES.get(key, key.replace("_", " "))
    first, second = setting_text(key, ours), setting_text(key, theirs)
    if first == second:  # the text omits the part that differs
        first, second = str(ours), str(theirs)
    departures[key] = f"{name} {first} instead of {second}"
