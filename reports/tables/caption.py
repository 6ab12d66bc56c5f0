"""Table captions: the origin of the numbers, and how to read bold, underline, n and the marks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from reports.analysis.added_seeds import note
from reports.analysis.margins import MARGIN_NOTES
from reports.analysis.results import Results
from reports.store.rows import OUTSIDE
from reports.tables.table import MARKS, Table, TableCell, with_best
from sweep import listing
from sweep.store.numerics import NUMERICS_VERSION
from sweep.store.older import versions_text
from sweep.studies.check_search import SEARCHED
from trainers.config import kept_epoch

if TYPE_CHECKING:
    import pandas as pd

CHECKPOINTS = {
    "last": "the last epoch",
    "best_test": "the epoch with the best PGD accuracy on the test set (best@test)",
    "best_validation": "the epoch with the best PGD accuracy on held-out training images (best@validation)",
}

DECISION = (
    "Dunnett's T3 over all pairs of the {family}, two-sided, α = 0.05: it allows for unequal spreads and for a best "
    "that the data chose"
)


def finish(table: Table, notes: Iterable[str]) -> Table:
    """Return the table with its best cells marked and its caption: `notes`, then how to read the marks."""
    marked = with_best(table)
    return replace(marked, notes=(*notes, *reading_notes(marked)))


def tuning_notes(results: Results, table: Table) -> list[str]:
    """Return a note on the columns that a search tuned, since a comparison with the others is unequal."""
    names_by_tuning: dict[str, dict[str, None]] = {}
    untuned = False
    for cell in table.cells():
        study, label = cell.key.study, cell.label
        tuning = results.tuning(study, label) if label else None
        untuned = untuned or (bool(label) and tuning is None)
        if tuning is not None:
            names_by_tuning.setdefault(tuning, {})[results.labels[study][label]] = None
    parts = [f"{', '.join(names)}: {tuning}" for tuning, names in names_by_tuning.items()]
    return [f"{'; '.join(parts)}{'; the others are not' if untuned else ''}."] if parts else []


def twin_notes(results: Results, table: Table) -> list[str]:
    """Return a note on each column or row that shows the same trainings as another one."""
    twins = {(cell.key.study, cell.label): None for cell in table.cells() if cell.same_as}
    return [twin_text(results, study, label) for study, label in twins]


def twin_text(results: Results, study: str, label: str) -> str:
    """Return a sentence on the label with the same trainings; there must be one."""
    names, twin = results.labels[study], results.same_trainings(study, label)
    own = label in results.searches(study) and label.removesuffix(SEARCHED) == twin
    why = "the search chose the study's own values: " if own else ""
    return f"{names[label]}: {why}these are the trainings of {names[twin]}, tested once."


def study_twins(results: Results, study: str) -> list[str]:
    """Return a sentence on each label that shows the same trainings as another one."""
    labels = results.labels[study]
    return [twin_text(results, study, label) for label in labels if results.same_trainings(study, label)]


def outside_notes(results: Results, table: Table) -> list[str]:
    """Return a note on the columns whose models the study did not train."""
    columns = {(cell.key.study, cell.label): None for cell in table.cells() if cell.label}
    names = [results.labels[study][label] for study, label in columns if results.methods[study, label] == OUTSIDE]
    return [f"{', '.join(names)}: from elsewhere, one model (n = 1), not trained by this study."] if names else []


def origin_notes(results: Results, study: str) -> list[str]:
    """Return a note on each kind of device or version in which the study's trainings differ.

    Devices and versions round differently, and training amplifies the difference.
    """
    rows = _finished(results, study)
    rows = rows[rows["method"] != OUTSIDE]
    values_by_kind: dict[str, set[str]] = {"devices": {*rows["device"]}}
    for made_with in filter(None, rows["made_with"]):
        for kind, value in made_with.items():
            values_by_kind.setdefault(kind, set()).add(value)
    values_by_kind.pop("kinds of device", None)  # the devices themselves are listed
    differing = {kind: sorted(str(value) for value in values if value) for kind, values in values_by_kind.items()}
    return [
        f"Trainings were computed with different {kind}, which round differently: {', '.join(names)}."
        for kind, names in differing.items()
        if len(names) > 1
    ]


def unlike_notes(results: Results, studies: Iterable[str]) -> list[str]:
    """Return warnings about studies with models of different data, or of another numerics version than this one."""
    notes = []
    for study in studies:
        rows = _finished(results, study)
        made_on: dict[str, Counter[str]] = defaultdict(Counter)
        for data in filter(None, rows["data"]):
            for name, sha256 in data.items():
                made_on[name][sha256] += 1
        for name, counts in made_on.items():
            if len(counts) > 1:
                listed = ", ".join(f"{count} on sha256 {sha256[:16]}…" for sha256, count in sorted(counts.items()))
                notes.append(
                    f"NO COMPARISON: models of {study} were made on different data under the name {name!r} ({listed}); "
                    "train them again in another store."
                )
        versions = Counter(int(version) for version in rows["numerics"] if version and version != NUMERICS_VERSION)
        if versions:
            trainings = listing.count(versions.total(), "training")
            notes.append(f"{study} shows {trainings} of {versions_text(versions)}.")
    return notes


def _finished(results: Results, study: str) -> pd.DataFrame:
    """Return the study's finished trainings, each once even if several labels show it."""
    cells = results.data.cells
    return cells[(cells["study"] == study) & (cells["status"] == "done")].drop_duplicates("trial")


def checkpoint_text(name: str) -> str:
    """Return a description of a checkpoint's name."""
    number = kept_epoch(name)
    return CHECKPOINTS.get(name, name) if number is None else f"the weights after {number} epochs"


def checkpoint_note(results: Results, study: str) -> str:
    """Return a sentence on the protocol and checkpoint of a study's tables."""
    checkpoint = results.shown_checkpoint(study)
    text = f"Protocol {results.protocol(study)}; checkpoint {checkpoint}: {checkpoint_text(checkpoint)}."
    if checkpoint == "best_test":
        also = ", as the paper did," if results.compares(study) and results.paper.checkpoint == checkpoint else ""
        text += f" Choosing the epoch on the test set{also} makes all numbers a little too good."
    return text


def margins_note(results: Results, studies: Iterable[str]) -> str:
    """Return how the margins were measured; the two estimators give different numbers."""
    estimators = dict.fromkeys(MARGIN_NOTES[results.margins.estimator(study)] for study in studies)
    return f"Adversarial training images at the last epoch, {' or '.join(estimators)}"


def added_notes(cells: Iterable[TableCell]) -> list[str]:
    """Return a note on the added seeds that these cells leave out."""
    seeds = [cell.seeds for cell in cells if cell.added]
    return [note(seeds)] if seeds else []


def reading_notes(table: Table) -> list[str]:
    """Return how to read bold, underline, n and the marks, as far as they occur in the table."""
    family = {"row": "row", "group": "row of a group", "column": "column of a block"}.get(table.compare, "")
    notes = ["Mean±std (ddof=1) over training seeds; n is given where it is not 3."]
    untested = any(cell.untested for cell in table.cells())
    if any(cell.best for cell in table.cells()):
        notes.append(f"Bold: the {table.best} mean of its {family}.")
    if any(cell.tied for cell in table.cells()):
        notes.append(f"Underlined: not significantly different from it ({DECISION.format(family=family)}).")
        if any(cell.tied and cell.against_best and cell.against_best.significant for cell in table.cells()):
            notes.append("Where the best has lost seeds (‡, §), whatever was tested is underlined: nothing is decided.")
    elif any(cell.against_best and cell.against_best.significant for cell in table.cells()):
        subject = "All others that were tested" if untested else "All others"
        notes.append(f"{subject} differ significantly from it ({DECISION.format(family=family)}).")
    notes += added_notes(table.cells())
    if untested:
        notes.append("No test was possible with a single seed or without variation between seeds.")
    # Tables with ¶ explain it in full in a note of their own.
    seen = {sign for cell in table.cells() for sign in cell.marks} - {"¶"}
    notes += [f"{sign} {words}" for sign, words in MARKS.items() if sign in seen]
    if any(cell.sample is None for cell in table.cells()):
        notes.append("Holes: 0/3 stands for three planned seeds of which none is finished, — for a cell not planned.")
    return notes
