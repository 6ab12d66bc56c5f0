"""Mean logit margin losses on adversarial training images, by the one estimator that a study's tables use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from reports.planned import Planned
from reports.store.load import ReportData

MarginEstimator = Literal["diagnostics", "training"]
# What a caption must say of a mean logit margin loss: the two are different numbers.
MARGIN_NOTES: dict[MarginEstimator, str] = {
    "diagnostics": "measured after training on images without augmentation, in eval mode, by PGD-20",
    "training": "the running mean over an epoch's training batches: images as augmented, the training attack, weights "
    "still moving",
}


class Margins:
    def __init__(self, data: ReportData, trainings: Callable[[str], Iterable[Planned]]) -> None:
        """`trainings` are those of a study."""
        self._data, self._trainings = data, trainings
        self._known: dict[tuple[str, str], dict[MarginEstimator, dict[str, float]]] = {}

    def of(self, study: str, trial: str, checkpoint: str) -> float | None:
        return self._by_estimator(study, checkpoint)[self.estimator(study, checkpoint)].get(trial)

    def estimator(self, study: str, checkpoint: str = "last") -> MarginEstimator:
        """The one that more of the study's trainings have; the two differ, so no row of a table mixes them."""
        known = self._by_estimator(study, checkpoint)
        return "training" if len(known["training"]) > len(known["diagnostics"]) else "diagnostics"

    def _by_estimator(self, study: str, checkpoint: str) -> dict[MarginEstimator, dict[str, float]]:
        """Values by trial."""
        if (study, checkpoint) in self._known:
            return self._known[study, checkpoint]
        found: dict[MarginEstimator, dict[str, float]] = {"diagnostics": {}, "training": {}}
        for planned in self._trainings(study):
            if planned.status == "done":
                value = self._data.diagnostics_summary(planned.trial, checkpoint, study).get("train_margin_mean")
                if value is not None:
                    found["diagnostics"][planned.trial] = float(value)
                value = planned.last_epoch.get("train_margin") if checkpoint == "last" else None
                if value is not None:
                    found["training"][planned.trial] = float(value)
        self._known[study, checkpoint] = found
        return found
