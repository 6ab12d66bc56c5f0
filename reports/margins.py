"""Mean logit margin losses on adversarial training images, by the one estimator that a study's tables use."""

from __future__ import annotations

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


# The same in a claim's evidence.
MARGIN_EVIDENCE: dict[MarginEstimator, str] = {
    "diagnostics": "margins measured after training",
    "training": "margins averaged during training",
}


class Margins:
    def __init__(self, data: ReportData) -> None:
        self._data = data

    def of(self, study: str, planned: Planned, checkpoint: str) -> float | None:
        """Of a finished training; None where the study's estimator does not know it, whatever the other one says."""
        if planned.status != "done":
            return None
        if self.estimator(study) == "diagnostics":
            value = self._data.diagnostics_summary(planned.trial, checkpoint, study).get("train_margin_mean")
        else:
            value = planned.last_epoch.get("train_margin") if checkpoint == "last" else None
        return None if value is None else float(value)

    def estimator(self, study: str) -> MarginEstimator:
        """By what the study asks for and not by what has been computed so far: the two differ, and a verdict must not
        change from one to the other while records come in."""
        return "diagnostics" if self._data.manifests[study].evaluation.wants_diagnostics else "training"
