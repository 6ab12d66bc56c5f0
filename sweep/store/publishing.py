"""What a store that is published may leave behind: no table of accuracies reads it; some of it is large or private."""

from __future__ import annotations

from sweep.store import layout
from sweep.store.records.record import Record

# Without diagnostics there are no figures of margins, gradients and potentially misclassified images.
LEAVABLE = ("weights", "logs", "journals", "counterexamples", "diagnostics", "commands")


def leavable(path: str) -> str | None:
    """What of LEAVABLE a file is; None for a record, diagnostics aside, which come with their arrays or not at all."""
    if path.endswith(layout.WEIGHTS):
        return "weights"
    folder = path.partition("/")[0]
    if folder == layout.DIAGNOSTICS:
        return "diagnostics"
    beside = {layout.TRIALS: "logs", layout.SEARCHES: "journals", layout.EVALUATIONS: "counterexamples"}
    return None if layout.kind_at(path) else beside.get(folder)


def without_command(record: Record) -> Record:
    """A command may tell where somebody keeps their files."""
    return record.model_copy(update={"command": None}) if getattr(record, "command", None) else record
