"""The result of one study in a few lines of plain text, for the end of a run."""

from __future__ import annotations

from pathlib import Path

from reports.names import attack_name
from reports.results import Results
from reports.significance import study_tests
from reports.store.load import load
from reports.tables.caption import added_notes
from reports.tables.study import main_table
from reports.tables.table import MARKS, TableCell, headline_measure
from sweep import listing
from sweep.store.base import Store

MOST_ROWS = 40


def result_text(store: Store | str | Path, study: str, cache: Path | None = None) -> str:
    """Accuracies, n and the verdict against the baseline by method; empty where nothing is finished."""
    # With a cache all studies: it keeps what was asked for last, and the tables asked for all.
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
    verdicts = {label: f"as {names[other]}" for label, other in twins.items() if other}
    verdicts |= {row.label: row.verdict for row in tests[0].rows} if tests else {}
    if tests:
        verdicts[tests[0].reference] = "the best" if tests[0].is_best else "baseline"
    against = f"against {tests[0].reference_display}" if tests else "verdict"
    shown = []
    for place, column in enumerate(main.columns):
        cells = [row.cells[place] for row in rows]
        shown.append((column.header, *map(_text, cells), _n(cells[0]), verdicts.get(cells[0].key.label, "")))
    headers = ("method", *(row.header for row in rows), "n", against)
    lines = [
        f"{results.title(study)}: accuracy in percent, ε = {results.epsilon(study)}, {results.shown_checkpoint(study)}",
        listing.columns(headers, shown[:MOST_ROWS]),
    ]
    if len(shown) > MOST_ROWS:
        lines.append(f"… and {len(shown) - MOST_ROWS} more methods in the tables")
    signs = {sign for row in rows for cell in row.cells for sign in cell.marks}
    lines += [f"{sign} {words}" for sign, words in MARKS.items() if sign in signs]
    if tests:
        lines.append(f"Verdicts on {attack_name(tests[0].measure)}: {tests[0].rule}.")
        lines += added_notes(rows[0].cells)
    return "\n".join(lines)


def _text(cell: TableCell) -> str:
    return (cell.text if cell.sample is not None else cell.hole) + cell.marks


def _n(cell: TableCell) -> str:
    found = cell.sample.n if cell.sample is not None else 0
    return str(found) if found == cell.planned else f"{found}/{cell.planned}"
