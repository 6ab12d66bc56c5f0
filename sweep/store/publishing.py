"""Files that may be left out when a store is published. No table of accuracies needs them."""

from __future__ import annotations

from sweep.store import layout
from sweep.store.records.record import Record

# Without diagnostics, there are no figures of margins, gradients and potentially misclassified images.
LEAVABLE = ("weights", "logs", "journals", "counterexamples", "diagnostics", "commands")


def leavable(path: str) -> str | None:
    """Return the member of LEAVABLE that a file belongs to, or None if it must be published.

    Diagnostics records count as leavable, because they are useless without their arrays.
    """
    if path.endswith(layout.WEIGHTS):
        return "weights"
    folder = path.partition("/")[0]
    if folder == layout.DIAGNOSTICS:
        return "diagnostics"
    beside = {layout.TRIALS: "logs", layout.SEARCHES: "journals", layout.EVALUATIONS: "counterexamples"}
    return None if layout.kind_at(path) else beside.get(folder)


def without_command(record: Record) -> Record:
    """Return the record without its command, which may reveal private paths."""
    return record.model_copy(update={"command": None}) if getattr(record, "command", None) else record
