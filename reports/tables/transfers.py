"""The transfer matrix: counterexamples for the models of each row, tested on the models of each column."""

from __future__ import annotations

from reports.analysis.names import attack_name
from reports.analysis.results import Results
from reports.analysis.transfers import Transfers
from reports.tables.caption import checkpoint_note, finish
from reports.tables.table import Block, Column, Row, Table


def transfer_table(results: Results, study: str, labels: list[str]) -> Table | None:
    """Return the table, or None if no counterexamples were transferred."""
    transfers = Transfers(results, study)
    if not results.data.has_transfers:
        return None
    names = results.labels[study]
    rows = tuple(
        Row(names[source], tuple(transfers.share_cell(source, target) for target in labels)) for source in labels
    )
    table = Table(
        f"{study}_transfers",
        f"{results.title(study)}: who breaks whom",
        tuple(Column(names[label]) for label in labels),
        (Block("", rows),),
        best="none",
        compare="none",
        corner="Counterexamples of",
    )
    notes = [
        "Percent of the images that a model (column) classifies correctly and that a counterexample kept for another "
        f"model (row) breaks, whichever stored attack found it; {results.radius_text(study)}. No model is tried with "
        f"its own: that is {attack_name('autoattack')}'s number. By seed of the column, means over the row's models.",
        checkpoint_note(results, study),
    ]
    return finish(table, notes)
