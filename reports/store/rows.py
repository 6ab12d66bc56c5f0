"""Convert records into rows of frames."""

from __future__ import annotations

from functools import cache
from typing import Any

from sweep.store import layout
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.manifest import Manifest, PlannedCell
from sweep.store.records.row import RowRecord
from sweep.store.records.trial import TrialRecord
from trainers.values import as_float

FrameRow = dict[str, Any]
OUTSIDE = "outside"  # method and checkpoint of models that no training of the study made

CELL_COLUMNS = [
    *("study", "label", "display", "method", "hyperparameters", "seed", "trial", "status", "reason", "config"),
    *(
        "checkpoints",
        "metrics",
        "last_epoch",
        "chosen_epochs",
        "versions",
        "commit",
        "device",
        "made_with",
        "data",
        "numerics",
        "wall_seconds",
        "command",
        "log",
    ),
]
EVALUATION_COLUMNS = [
    *(
        "trial",
        "checkpoint",
        "attack_id",
        "attack",
        "epsilon",
        "epsilon_value",
        "norm",
        "settings",
        "images",
        "accuracy",
        "clean_accuracy",
    ),
    *("warnings", "path"),
]


def planned_row(study: str, cell: PlannedCell) -> FrameRow:
    """Return the row of a cell as its study plans it, run or not."""
    return {
        "study": study,
        "label": cell.label,
        "display": cell.display or cell.label,
        "method": cell.method,
        # Versions up to 0.2.0 wrote the study's own values before the search had chosen any.
        "hyperparameters": cell.hyperparameters if cell.trial else {},
        "seed": cell.seed,
        "trial": layout.short(cell.trial or ""),
        "status": "missing" if cell.trial else "waiting",
    }


def outside_row(record: RowRecord) -> FrameRow:
    """Return the row of a model that no training of the study made. It has one seed and is done."""
    return {
        "study": record.study,
        "label": record.label,
        "display": record.display,
        "method": OUTSIDE,
        "hyperparameters": {},
        "seed": 0,
        "trial": layout.short(record.subject),
        "status": "done",
        "versions": record.versions,
        "device": record.device,
        "data": record.data,
    }


def with_outside(rows: list[FrameRow], outside: list[tuple[RowRecord, Manifest]]) -> list[FrameRow]:
    """Return the evaluation rows with those of outside models repeated for every checkpoint of the study's tables."""
    added: dict[tuple[str, str], FrameRow] = {}
    for record, manifest in outside:
        trial, labels = layout.short(record.subject), [cell.label for cell in manifest.cells]
        checkpoints = {name for label in labels for name in manifest.checkpoints(label)} or {manifest.checkpoint}
        for row in rows:
            if (row["trial"], row["checkpoint"]) == (trial, OUTSIDE):
                added |= {(row["path"], name): {**row, "checkpoint": name} for name in sorted(checkpoints)}
    return [*(row for row in rows if row["checkpoint"] != OUTSIDE), *added.values()]


def trial_row(record: TrialRecord) -> FrameRow:
    """Return the row of a trial with the curve's last epoch and those of its checkpoints, but without the curve."""
    fields = {"trial", "status", "reason", "config", "checkpoints", "metrics", "versions", "commit", "device"}
    fields |= {"data", "numerics", "wall_seconds", "command", "log"}
    row = {**record.model_dump(mode="json", include=fields), "made_with": record.made_with}
    curve = record.curve
    epochs = {name: checkpoint.epoch for name, checkpoint in record.checkpoints.items()}
    chosen = {name: curve[epoch] for name, epoch in epochs.items() if 0 <= epoch < len(curve)}
    trial = layout.short(record.trial)
    return {**row, "trial": trial, "last_epoch": curve[-1] if curve else {}, "chosen_epochs": chosen}


def evaluation_row(record: EvaluationRecord) -> FrameRow:
    """Return the row of an evaluation."""
    path = record.path
    return {
        "trial": layout.short(record.trial),
        "checkpoint": record.checkpoint,
        "attack_id": path.rpartition("/")[2].removesuffix(".json"),
        "attack": str(record.attack["name"]),
        "epsilon": (epsilon := str(record.attack.get("epsilon", ""))),
        "epsilon_value": _number(epsilon),
        "norm": str(record.attack.get("norm", "linf")),
        "settings": record.attack,
        "images": record.images,
        "accuracy": record.accuracy,
        "clean_accuracy": record.clean_accuracy,
        "warnings": list(record.warnings),
        "path": path,
    }


@cache
def _number(epsilon: str) -> float | None:
    """Return a radius as a number; None if the record has no readable one."""
    try:
        return as_float(epsilon)
    except (ValueError, ZeroDivisionError):
        return None
