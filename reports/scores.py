"""Accuracies under attack by trial and checkpoint, as the evaluations of a store have them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

import pandas as pd

from reports.measures import in_norm, no_ball


class Score(NamedTuple):
    attack_id: str
    images: int
    accuracy: float
    clean_accuracy: float | None
    warned: bool
    path: str


class Scores:
    def __init__(self, evaluations: pd.DataFrame) -> None:
        self._found: dict[tuple[str, str], dict[tuple[str, str], list[Score]]] = defaultdict(lambda: defaultdict(list))
        self._checkpoints: dict[str, set[str]] = defaultdict(set)
        columns = ("trial", "checkpoint", "attack", "norm", "epsilon", "attack_id", "images", "accuracy")
        for row in zip(*(evaluations[name] for name in (*columns, "clean_accuracy", "warnings", "path")), strict=True):
            trial, checkpoint, attack, norm, epsilon, attack_id, images, accuracy, clean, warnings, path = row
            known = None if clean is None or clean != clean else float(clean)
            entry = Score(attack_id, int(images), float(accuracy), known, bool(warnings), path)
            self._found[trial, checkpoint][in_norm(attack, norm), "" if no_ball(attack) else epsilon].append(entry)
            self._checkpoints[trial].add(checkpoint)

    def attacks(self, trial: str, checkpoint: str) -> Collection[tuple[str, str]]:
        """Name and radius of each; pgd-20@l2 is not in L∞."""
        return self._found.get((trial, checkpoint), {}).keys()

    def checkpoints(self, trial: str) -> Collection[str]:
        return self._checkpoints.get(trial, ())

    def of(self, trial: str, checkpoint: str, attack: str, radius: str) -> list[Score]:
        """More than one where the same attack was made on other numbers of images, or by other settings."""
        return self._found.get((trial, checkpoint), {}).get((attack, radius), [])

    def clean(self, trial: str, checkpoint: str) -> tuple[int, float] | None:
        """Images and accuracy by the attack with the most: each starts by classifying the clean images."""
        groups = self._found.get((trial, checkpoint), {}).values()
        return max(
            ((one.images, one.clean_accuracy) for group in groups for one in group if one.clean_accuracy is not None),
            default=None,
        )
