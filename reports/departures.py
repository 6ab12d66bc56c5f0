"""Where a study in the store ran with other settings than the study shipped under its name, which has the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from reports.protocol import NAMES, WHOLE, setting_text, whole
from reports.results import Results
from reports.tables.table import Table, TableCell
from sweep import studies
from sweep.store.encoding import canonical
from sweep.studies.check_search import SEARCHED
from sweep.studies.written import written_settings, written_study
from trainers.data import dataset_facts, dataset_names

# Margins are taken from training images at the last epoch: test images and the choice of the epoch have no part in it.
ON_TRAINING_IMAGES = ("margin", "margin_ratio")
OF_THE_TEST = ("test_images", "selection")
# Hyperparameters are compared apart, a search may have chosen them.
IGNORED = ("seed", "hyperparameters")
OUTER = ("recipe.schedule", "recipe.augmentation")
PARTS = {"selection.protocol": "protocol", "selection.validation": "training images held out"}


class Departures:
    """Per cell, what departs, in words: 'epochs 1 instead of 200'. A study or label that is not shipped has none."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self._found: dict[tuple[str, str], dict[str, str]] = {}

    def of(self, cell: TableCell) -> tuple[str, ...]:
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
        found = dict(self._of_label(key.study, cell.label))
        if self._shipped(key.study, cell.label):
            found |= self._of_evaluation(cell, "test_images" in found)
        return tuple(found.values())

    def covers(self, study: str, label: str) -> bool:
        """Whether hyperparameters of this label count as settings: not where a search chose them."""
        return shipped(study, label) is not None and self.results.tuning(study, label) is None

    def mark(self, table: Table) -> Table:
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
        """One for each study: what departs, and in which methods."""
        by_study: dict[str, dict[str, tuple[str, ...]]] = {}
        for cell in cells:
            if cell.departs:
                name = self.results.labels[cell.key.study][cell.label]
                known = by_study.setdefault(cell.key.study, {})
                known[name] = tuple(dict.fromkeys([*known.get(name, ()), *cell.departs]))
        return [f"{study}: {joined(found)}." for study, found in by_study.items()]

    def _shipped(self, study: str, label: str) -> bool:
        return label in self.results.configs(study) and shipped(study, label) is not None

    def _of_label(self, study: str, label: str) -> dict[str, str]:
        if (study, label) not in self._found:
            self._found[study, label] = self._compare(study, label)
        return self._found[study, label]

    def _compare(self, study: str, label: str) -> dict[str, str]:
        tuned = self.results.tuning(study, label)
        found: dict[str, str] = {} if tuned is None else {"search": f"hyperparameters {tuned}; the others are not"}
        # A searched column has a label of its own; but for its values it is set as the one that was searched.
        theirs = shipped(study, label) or shipped(study, label.removesuffix(SEARCHED))
        if theirs is None:
            return found
        ours = self.results.configs(study).get(label)
        if ours is not None:
            found |= differing(theirs, ours.model_dump(mode="json"))
        if self.covers(study, label):
            used = self.results.hyperparameters.get((study, label), {})
            for name, value in theirs["hyperparameters"].items():
                if name in used and canonical(used[name]) != canonical(value):
                    found[f"hyperparameters.{name}"] = f"{name} {used[name]} instead of {value}"
        return found

    def _of_evaluation(self, cell: TableCell, on_fewer: bool) -> dict[str, str]:
        key, found = cell.key, {}
        ours, theirs = self.results.epsilon(key.study), written_study(key.study).evaluation.epsilon
        if key.epsilon is None and key.measure != "clean" and ours != theirs:
            found["evaluation.epsilon"] = f"attack radius {ours} instead of {theirs}"
        dataset = self.results.data.manifests[key.study].dataset
        images = self.results.images([cell])
        if not on_fewer and images and dataset in dataset_names():
            all_images = dataset_facts(dataset).test_images
            if min(images) != all_images:
                found["evaluation.images"] = f"test images attacked {min(images):,} instead of {all_images:,}"
        return found


def joined(found: Mapping[str, Iterable[str]]) -> str:
    """Method -> what departs, as one text: methods with the same departures are named together."""
    who: dict[str, list[str]] = {}
    for name, texts in found.items():
        for text in texts:
            who.setdefault(text, []).append(name)
    together: dict[tuple[str, ...], list[str]] = {}
    for text, names in who.items():
        together.setdefault(tuple(names), []).append(text)
    return "; ".join(f"{'; '.join(texts)} ({', '.join(names)})" for names, texts in together.items())


def moves(setting: str, measure: str) -> bool:
    """Whether a setting has a part in such a number; images held out for the choice of the epoch are not trained on."""
    if measure not in ON_TRAINING_IMAGES or setting.startswith("selection.validation"):
        return True
    return setting.split(".")[0] not in OF_THE_TEST


def shipped(study: str, label: str) -> dict[str, Any] | None:
    """The configuration of a label in the shipped study of that name."""
    if study not in studies.shipped() or label not in written_study(study).labels:
        return None
    return written_settings(study, label)


def differing(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, str]:
    """Setting -> how the second configuration departs from the first, in words; hyperparameters and seed aside."""
    found: dict[str, str] = {}
    _walk(canonical(whole(theirs)), canonical(whole(ours)), "", found)
    if theirs["recipe"]["steps"] and "recipe.steps" not in found:
        found.pop("recipe.epochs", None)  # steps end the training, whatever the epochs say
    return found


def _walk(theirs: Any, ours: Any, key: str, found: dict[str, str]) -> None:
    """Only what both have is compared: a record made before a setting existed does not depart in it."""
    if key in IGNORED or theirs == ours:
        return
    if isinstance(theirs, dict) and isinstance(ours, dict) and key not in OUTER:
        for name in theirs:
            if name in ours:
                _walk(theirs[name], ours[name], f"{key}.{name}" if key else name, found)
        return
    head, _, part = key.partition(".")
    if key in PARTS:
        name = PARTS[key]
    elif head in WHOLE and part:
        name = f"{NAMES[head]}: {part.replace('_', ' ')}"
    else:
        name = NAMES.get(key, key.replace("_", " "))
    first, second = setting_text(key, ours), setting_text(key, theirs)
    if first == second:  # a part that the words leave out
        first, second = str(ours), str(theirs)
    found[key] = f"{name} {first} instead of {second}"
