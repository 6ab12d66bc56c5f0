"""A paper's tables filled from our records, with captions that list departures from its settings."""

from __future__ import annotations

from dataclasses import replace

from reports.analysis.names import attack_name
from reports.analysis.results import Results
from reports.comparison.departures import Departures
from reports.papers.paper import PaperTable
from reports.tables.caption import checkpoint_note, finish, margins_note, unlike_notes
from reports.tables.table import MARKS, Table, TableCell


def paper_tables(results: Results) -> list[Table]:
    """Return the tables of all papers. Tables whose studies are not in the store have empty cells only."""
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
    """Return the notes of a paper's table `source` that was filled as `table`."""
    studies = list(dict.fromkeys(cell.key.study for cell in table.cells() if cell.label))
    notes = unlike_notes(results, studies)
    measured = {cell.key.measure for cell in table.cells()}
    if measured - {"margin", "margin_ratio"}:
        radius = {cell.key.epsilon for cell in table.cells()} - {None}
        notes.append(f"Accuracy in percent on test data; attacks Linf, ε = {', '.join(sorted(map(str, radius)))}.")
        # The note for each checkpoint comes from the first study that uses it.
        first_study = {results.shown_checkpoint(study): study for study in reversed(studies)}
        for checkpoint in dict.fromkeys(map(results.shown_checkpoint, studies)):
            notes.append(checkpoint_note(results, first_study[checkpoint]))
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
        notes += [f"Trained, not yet measured: {results.data.suite_command(study, suite)}" for study in unmeasured]
    return notes


def _trained(results: Results, cell: TableCell) -> bool:
    return bool(cell.label) and any(planned.status == "done" for planned in results.seeds(cell.key.study, cell.label))


def searched_values(table: Table, results: Results, departures: Departures) -> list[str]:
    """Return a sentence on each hyperparameter that differs from the paper's, unless `departures` covers it."""
    sentences: dict[str, None] = {}
    for cell in table.cells():
        if not cell.label or departures.covers(cell.key.study, cell.label):
            continue
        for name, (theirs, ours) in results.differences(cell.key, cell.label).items():
            sentences[f"{cell.key.study} ran {cell.label} with {name} = {ours} instead of {theirs}."] = None
    return list(sentences)
