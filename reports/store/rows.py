"""One record becomes one row of a frame."""

from __future__ import annotations

from functools import cache
from typing import Any

from sweep.store import layout
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.manifest import Manifest, PlannedCell
from sweep.store.records.row import RowRecord
from sweep.store.records.trial import TrialRecord
from trainers.values import as_float

Row = dict[str, Any]
OUTSIDE = "outside"  # in place of a method and of a checkpoint

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


def planned_row(study: str, cell: PlannedCell) -> Row:
    """A cell as its study wants it, run or not."""
    return {
        "study": study,
        "label": cell.label,
        "display": cell.display or cell.label,
        "method": cell.method,
        # Versions up to 0.2.0 wrote the study's own values for what a search had still to choose.
        "hyperparameters": cell.hyperparameters if cell.trial else {},
        "seed": cell.seed,
        "trial": layout.short(cell.trial or ""),
        "status": "missing" if cell.trial else "waiting",
    }


def outside_row(record: RowRecord) -> Row:
    """A model that no training of the study made: one seed, and nothing to wait for."""
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


def with_outside(rows: list[Row], outside: list[tuple[RowRecord, Manifest]]) -> list[Row]:
    """Evaluations of such models stand at every checkpoint that the study's tables show."""
    added: dict[tuple[str, str], Row] = {}
    for record, manifest in outside:
        trial, labels = layout.short(record.subject), [cell.label for cell in manifest.cells]
        shown = {name for label in labels for name in manifest.checkpoints(label)} or {manifest.checkpoint}
        for row in rows:
            if (row["trial"], row["checkpoint"]) == (trial, OUTSIDE):
                added |= {(row["path"], name): {**row, "checkpoint": name} for name in sorted(shown)}
    return [*(row for row in rows if row["checkpoint"] != OUTSIDE), *added.values()]


def trial_row(record: TrialRecord) -> Row:
    """Without its curve, which is nearly all of it; the rows of the last epoch and of each checkpoint's are kept."""
    kept = {"trial", "status", "reason", "config", "checkpoints", "metrics", "versions", "commit", "device"}
    kept |= {"data", "numerics", "wall_seconds", "command", "log"}
    row = {**record.model_dump(mode="json", include=kept), "made_with": record.made_with}
    curve = record.curve
    chosen = {name: curve[one.epoch] for name, one in record.checkpoints.items() if 0 <= one.epoch < len(curve)}
    trial = layout.short(record.trial)
    return {**row, "trial": trial, "last_epoch": curve[-1] if curve else {}, "chosen_epochs": chosen}


def evaluation_row(record: EvaluationRecord) -> Row:
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
    try:
        return as_float(epsilon)
    except (ValueError, ZeroDivisionError):
        return None  # a record without a readable radius
