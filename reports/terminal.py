"""The result of one study as a few lines of plain text, for the end of a run."""

from __future__ import annotations

from pathlib import Path

from reports.analysis.names import attack_name
from reports.analysis.results import Results
from reports.analysis.significance import study_tests
from reports.store.load import load
from reports.tables.caption import added_notes
from reports.tables.study import main_table
from reports.tables.table import MARKS, TableCell, headline_measure
from sweep import listing
from sweep.store.base import Store

MOST_ROWS = 40


def result_text(store: Store | str | Path, study: str, cache: Path | None = None) -> str:
    """Return accuracies, n and verdict against the baseline for each method; '' if no number exists yet."""
    # With a cache load all studies: it holds the rows of the last load only, and the tables load all studies.
    results = Results.beside_papers(load(store, None if cache else [study], cache), None)
    if study not in results.data.manifests or study not in results.labels:
        return ""
    main = main_table(results, study)
    rows = main.blocks[0].rows
    if not any(cell.sample for row in rows for cell in row.cells):
        return ""
    tests = study_tests(results, study, headline_measure(main))
    names = results.labels[study]
    twins = {label: results.same_trainings(study, label) for label in names}
    verdicts = {label: f"as {names[twin]}" for label, twin in twins.items() if twin}
    verdicts |= {row.label: row.verdict for row in tests[0].rows} if tests else {}
    if tests:
        verdicts[tests[0].reference] = "the best" if tests[0].is_best else "baseline"
    against = f"against {tests[0].reference_display}" if tests else "verdict"
    methods = []
    for index, column in enumerate(main.columns):
        cells = [row.cells[index] for row in rows]
        methods.append((column.header, *map(_text, cells), _n(cells[0]), verdicts.get(cells[0].key.label, "")))
    headers = ("method", *(row.header for row in rows), "n", against)
    lines = [
        f"{results.title(study)}: accuracy in percent, ε = {results.epsilon(study)}, {results.shown_checkpoint(study)}",
        listing.columns(headers, methods[:MOST_ROWS]),
    ]
    if len(methods) > MOST_ROWS:
        lines.append(f"… and {len(methods) - MOST_ROWS} more methods in the tables")
    signs = {sign for row in rows for cell in row.cells for sign in cell.marks}
    lines += [f"{sign} {words}" for sign, words in MARKS.items() if sign in signs]
    if tests:
        lines.append(f"Verdicts on {attack_name(tests[0].measure)}: {tests[0].rule}.")
        lines += added_notes(rows[0].cells)
    return "\n".join(lines)


def _text(cell: TableCell) -> str:
    return (cell.text if cell.sample is not None else cell.hole) + cell.marks


def _n(cell: TableCell) -> str:
    n = cell.sample.n if cell.sample is not None else 0
    return str(n) if n == cell.planned else f"{n}/{cell.planned}"
