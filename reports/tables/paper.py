"""A paper's tables from our records, in its layout, with captions that say what departs from it."""

from __future__ import annotations

from dataclasses import replace

from reports.departures import Departures
from reports.names import attack_name
from reports.papers.paper import PaperTable
from reports.results import Results
from reports.tables.caption import checkpoint_note, finish, margins_note, unlike_notes
from reports.tables.table import MARKS, Table, TableCell


def paper_tables(results: Results) -> list[Table]:
    """Of all papers; a table without any of its studies in the store is all holes."""
    tables = []
    for paper in results.papers:
        ours = results.beside(paper)
        departures = Departures(ours)
        for source in paper.tables:
            table = departures.mark(source.table(ours.cell))
            if len(results.papers) > 1:  # two papers may number and name their tables alike
                table = replace(table, name=f"{paper.name}_{table.name}", title=f"{paper.name}: {table.title}")
            tables.append(finish(table, paper_notes(source, table, ours, departures)))
    return tables


def paper_notes(source: PaperTable, table: Table, results: Results, departures: Departures) -> list[str]:
    studies = list(dict.fromkeys(cell.key.study for cell in table.cells() if cell.label))
    notes = unlike_notes(results, studies)
    measured = {cell.key.measure for cell in table.cells()}
    if measured - {"margin", "margin_ratio"}:
        radius = {cell.key.epsilon for cell in table.cells()} - {None}
        notes.append(f"Accuracy in percent on test data; attacks Linf, ε = {', '.join(sorted(map(str, radius)))}.")
        # Of the studies at one checkpoint the first speaks for all.
        speakers = {results.shown_checkpoint(study): study for study in reversed(studies)}
        for checkpoint in dict.fromkeys(map(results.shown_checkpoint, studies)):
            notes.append(checkpoint_note(results, speakers[checkpoint]))
    else:
        notes.append(f"{margins_note(results, studies)}; lower means larger margins.")
    if "worst" in measured:
        notes.append(
            f"Worst: the least of {', '.join(attack_name(name) for name in results.paper.worst_of)}, seed by seed."
        )
    notes += searched_values(table, results, departures)
    departing = departures.sentences(table.cells())
    if departing:
        notes.append(" ".join([f"¶ {MARKS['¶']}", *departing]))
    unmeasured = dict.fromkeys(
        cell.key.study for cell in table.cells() if cell.sample is None and _trained(results, cell)
    )
    if "suite" in source.spec:
        suite = source.spec["suite"]
        notes += [f"Trained, not yet measured: {results.data.suite_command(one, suite)}" for one in unmeasured]
    return notes


def _trained(results: Results, cell: TableCell) -> bool:
    return bool(cell.label) and any(one.status == "done" for one in results.seeds(cell.key.study, cell.label))


def searched_values(table: Table, results: Results, departures: Departures) -> list[str]:
    """Hyperparameters that are not the paper's because a search chose them, or because no shipped study has them."""
    found: dict[str, None] = {}
    for cell in table.cells():
        if not cell.label or departures.covers(cell.key.study, cell.label):
            continue
        for name, (theirs, ours) in results.differences(cell.key, cell.label).items():
            found[f"{cell.key.study} ran {cell.label} with {name} = {ours} instead of {theirs}."] = None
    return list(found)
