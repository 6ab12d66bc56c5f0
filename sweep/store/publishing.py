"""What a store that is published may leave behind: no table reads it, and some of it is large or private."""

from __future__ import annotations

from sweep.store import layout
from sweep.store.records.record import Record

LEAVABLE = ("weights", "logs", "journals", "counterexamples", "commands")


def leavable(path: str) -> str | None:
    """What of LEAVABLE a file beside a record is; None for arrays of diagnostics, which figures are drawn from."""
    if path.endswith(layout.WEIGHTS):
        return "weights"
    folder = path.partition("/")[0]
    return {layout.TRIALS: "logs", layout.SEARCHES: "journals", layout.EVALUATIONS: "counterexamples"}.get(folder)


def without_command(record: Record) -> Record:
    """A command may tell where somebody keeps their files."""
    return record.model_copy(update={"command": None}) if getattr(record, "command", None) else record
