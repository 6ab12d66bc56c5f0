"""One record becomes one row of a frame."""

from __future__ import annotations

from typing import Any

from sweep.store import layout
from sweep.store.records import EvaluationRecord, PlannedCell, TrialRecord

Row = dict[str, Any]

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
        "wall_seconds",
        "command",
        "log",
    ),
]
EVALUATION_COLUMNS = [
    *("trial", "checkpoint", "attack_id", "attack", "epsilon", "settings", "images", "accuracy", "clean_accuracy"),
    *("warnings", "path"),
]


def planned_row(study: str, cell: PlannedCell) -> Row:
    """A cell as its study wants it, run or not."""
    return {
        "study": study,
        "label": cell.label,
        "display": cell.display or cell.label,
        "method": cell.method,
        "hyperparameters": cell.hyperparameters,
        "seed": cell.seed,
        "trial": layout.short(cell.trial or ""),
        "status": "missing" if cell.trial else "waiting",
    }


def trial_row(record: TrialRecord) -> Row:
    """Without its curve, which is nearly all of it; the rows of the last epoch and of each checkpoint's are kept."""
    kept = {"trial", "status", "reason", "config", "checkpoints", "metrics", "versions", "commit", "device"}
    row = record.model_dump(mode="json", include={*kept, "wall_seconds", "command", "log"})
    curve = record.curve
    chosen = {name: curve[one.epoch] for name, one in record.checkpoints.items() if 0 <= one.epoch < len(curve)}
    trial = layout.short(record.trial)
    return {**row, "trial": trial, "last_epoch": curve[-1] if curve else {}, "chosen_epochs": chosen}


def evaluation_row(record: EvaluationRecord) -> Row:
    return {
        "trial": layout.short(record.trial),
        "checkpoint": record.checkpoint,
        "attack_id": record.path.rpartition("/")[2].removesuffix(".json"),
        "attack": str(record.attack["name"]),
        "epsilon": str(record.attack.get("epsilon", "")),
        "settings": record.attack,
        "images": record.images,
        "accuracy": record.accuracy,
        "clean_accuracy": record.clean_accuracy,
        "warnings": list(record.warnings),
        "path": record.path,
        "verdicts": record.verdicts,
    }
