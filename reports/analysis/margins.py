"""Mean logit margin losses on adversarial training images, by the one estimator that a study's tables use."""

from __future__ import annotations

from typing import Literal

from reports.analysis.planned import Planned
from reports.store.load import ReportData

MarginEstimator = Literal["diagnostics", "training"]
# For captions. The two estimators give different numbers, so each caption names its own.
MARGIN_NOTES: dict[MarginEstimator, str] = {
    "diagnostics": "measured after training on images without augmentation, in eval mode, by PGD-20",
    "training": "the running mean over an epoch's training batches: images as augmented, the training attack, weights "
    "still moving",
}
# For the evidence of claims.
MARGIN_EVIDENCE: dict[MarginEstimator, str] = {
    "diagnostics": "margins measured after training",
    "training": "margins averaged during training",
}


class Margins:
    """Mean logit margin losses of finished trainings."""

    def __init__(self, data: ReportData) -> None:
        self._data = data

    def of(self, study: str, planned: Planned, checkpoint: str) -> float | None:
        """Return a training's margin by the study's estimator, or None if that estimator has no value."""
        if planned.status != "done":
            return None
        if self.estimator(study) == "diagnostics":
            value = self._data.diagnostics_summary(planned.trial, checkpoint, study).get("train_margin_mean")
        else:
            value = planned.last_epoch.get("train_margin") if checkpoint == "last" else None
        return None if value is None else float(value)

    def estimator(self, study: str) -> MarginEstimator:
        """Return the estimator that the study's settings ask for.

        It does not depend on the records so far: a verdict must not change estimators while records come in.
        """
        return "diagnostics" if self._data.manifests[study].evaluation.wants_diagnostics else "training"
