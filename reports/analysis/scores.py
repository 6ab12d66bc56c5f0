"""Accuracies under attack by trial and checkpoint, indexed from the evaluations of a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

import pandas as pd

from reports.analysis.measures import in_norm, no_ball


class EvaluationScore(NamedTuple):
    """The accuracies that one evaluation measured, in [0, 1]."""

    attack_id: str
    images: int
    accuracy: float
    clean_accuracy: float | None
    warned: bool
    path: str


class ScoreIndex:
    """All evaluations by trial, checkpoint, attack and radius."""

    def __init__(self, evaluations: pd.DataFrame) -> None:
        self._by_attack: dict[tuple[str, str], dict[tuple[str, str], list[EvaluationScore]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._checkpoints: dict[str, set[str]] = defaultdict(set)
        columns = ("trial", "checkpoint", "attack", "norm", "epsilon", "attack_id", "images", "accuracy")
        for row in zip(*(evaluations[name] for name in (*columns, "clean_accuracy", "warnings", "path")), strict=True):
            trial, checkpoint, attack, norm, epsilon, attack_id, images, accuracy, clean, warnings, path = row
            clean = None if clean is None or clean != clean else float(clean)
            score = EvaluationScore(attack_id, int(images), float(accuracy), clean, bool(warnings), path)
            self._by_attack[trial, checkpoint][in_norm(attack, norm), "" if no_ball(attack) else epsilon].append(score)
            self._checkpoints[trial].add(checkpoint)

    def attacks(self, trial: str, checkpoint: str) -> Collection[tuple[str, str]]:
        """Return name and radius of each attack. A norm other than L∞ is part of the name, as in pgd-20@l2."""
        return self._by_attack.get((trial, checkpoint), {}).keys()

    def checkpoints(self, trial: str) -> Collection[str]:
        return self._checkpoints.get(trial, ())

    def of(self, trial: str, checkpoint: str, attack: str, radius: str) -> list[EvaluationScore]:
        """Return the scores of an attack: several if it ran on other numbers of images or by other settings."""
        return self._by_attack.get((trial, checkpoint), {}).get((attack, radius), [])

    def clean(self, trial: str, checkpoint: str) -> tuple[int, float] | None:
        """Return images and clean accuracy of the attack on most images; None without any.

        Every attack classifies the clean images first.
        """
        groups = self._by_attack.get((trial, checkpoint), {}).values()
        return max(
            (
                (score.images, score.clean_accuracy)
                for scores in groups
                for score in scores
                if score.clean_accuracy is not None
            ),
            default=None,
        )
