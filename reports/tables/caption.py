"""What a table's caption says: where its numbers come from, and how to read bold, underline, n and the marks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from reports.added import note
from reports.margins import MARGIN_NOTES
from reports.results import Results
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
    """Marks the best, then writes the caption."""
    marked = with_best(table)
    return replace(marked, notes=(*notes, *reading_notes(marked)))


def tuning_notes(results: Results, table: Table) -> list[str]:
    """Which columns a search tuned: a comparison with the others is one of tuned with untuned methods."""
    found: dict[str, dict[str, None]] = {}
    untuned = False
    for cell in table.cells():
        study, label = cell.key.study, cell.label
        how = results.tuning(study, label) if label else None
        untuned = untuned or (bool(label) and how is None)
        if how is not None:
            found.setdefault(how, {})[results.labels[study][label]] = None
    names = [f"{', '.join(names)}: {how}" for how, names in found.items()]
    return [f"{'; '.join(names)}{'; the others are not' if untuned else ''}."] if names else []


def twin_notes(results: Results, table: Table) -> list[str]:
    """Which columns or rows show the very trainings of another."""
    shown = {(cell.key.study, cell.label): None for cell in table.cells() if cell.same_as}
    return [twin_text(results, study, label) for study, label in shown]


def twin_text(results: Results, study: str, label: str) -> str:
    names, other = results.labels[study], results.same_trainings(study, label)
    own = label in results.searches(study) and label.removesuffix(SEARCHED) == other
    why = "the search chose the study's own values: " if own else ""
    return f"{names[label]}: {why}these are the trainings of {names[other]}, tested once."


def study_twins(results: Results, study: str) -> list[str]:
    labels = results.labels[study]
    return [twin_text(results, study, label) for label in labels if results.same_trainings(study, label)]


def outside_notes(results: Results, table: Table) -> list[str]:
    """Which columns no training of the study made."""
    shown = {(cell.key.study, cell.label): None for cell in table.cells() if cell.label}
    names = [results.labels[study][label] for study, label in shown if results.methods[study, label] == OUTSIDE]
    return [f"{', '.join(names)}: from elsewhere, one model (n = 1), not trained by this study."] if names else []


def origin_notes(results: Results, study: str) -> list[str]:
    """Whether the study's trainings were computed with what rounds alike; training amplifies the difference."""
    rows = _finished(results, study)
    rows = rows[rows["method"] != OUTSIDE]
    found: dict[str, set[str]] = {"devices": {*rows["device"]}}
    for made_with in filter(None, rows["made_with"]):
        for what, value in made_with.items():
            found.setdefault(what, set()).add(value)
    found.pop("kinds of device", None)  # the devices themselves are named
    differing = {what: sorted(str(one) for one in values if one) for what, values in found.items()}
    return [
        f"Trainings were computed with different {what}, which round differently: {', '.join(names)}."
        for what, names in differing.items()
        if len(names) > 1
    ]


def unlike_notes(results: Results, studies: Iterable[str]) -> list[str]:
    """Of studies whose numbers do not belong into one table, or not beside those of this version."""
    notes = []
    for study in studies:
        rows = _finished(results, study)
        made_on: dict[str, Counter[str]] = defaultdict(Counter)
        for data in filter(None, rows["data"]):
            for name, sha256 in data.items():
                made_on[name][sha256] += 1
        for name, counts in made_on.items():
            if len(counts) > 1:
                listed = ", ".join(f"{count} on sha256 {one[:16]}…" for one, count in sorted(counts.items()))
                notes.append(
                    f"NO COMPARISON: models of {study} were made on different data under the name {name!r} ({listed}); "
                    "train them again in another store."
                )
        versions = Counter(int(one) for one in rows["numerics"] if one and one != NUMERICS_VERSION)
        if versions:
            shown = listing.count(versions.total(), "training")
            notes.append(f"{study} shows {shown} of {versions_text(versions)}.")
    return notes


def _finished(results: Results, study: str) -> pd.DataFrame:
    """Trainings, each once, whatever labels show it."""
    cells = results.data.cells
    return cells[(cells["study"] == study) & (cells["status"] == "done")].drop_duplicates("trial")


def checkpoint_text(name: str) -> str:
    number = kept_epoch(name)
    return CHECKPOINTS.get(name, name) if number is None else f"the weights after {number} epochs"


def checkpoint_note(results: Results, study: str) -> str:
    checkpoint = results.shown_checkpoint(study)
    shown = checkpoint_text(checkpoint)
    text = f"Protocol {results.protocol(study)}; checkpoint {checkpoint}: {shown}."
    if checkpoint == "best_test":
        also = ", as the paper did," if results.compares(study) and results.paper.checkpoint == checkpoint else ""
        text += f" Choosing the epoch on the test set{also} makes all numbers a little too good."
    return text


def margins_note(results: Results, studies: Iterable[str]) -> str:
    """Where these margins come from: the two ways to measure them give different numbers."""
    ways = dict.fromkeys(MARGIN_NOTES[results.margins.estimator(study)] for study in studies)
    return f"Adversarial training images at the last epoch, {' or '.join(ways)}"


def added_notes(cells: Iterable[TableCell]) -> list[str]:
    """Which seeds these cells leave out."""
    found = [cell.seeds for cell in cells if cell.added]
    return [note(found)] if found else []


def reading_notes(table: Table) -> list[str]:
    """How to read bold, underline, n and the marks; only what occurs in the table."""
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
        others = "All others that were tested" if untested else "All others"
        notes.append(f"{others} differ significantly from it ({DECISION.format(family=family)}).")
    notes += added_notes(table.cells())
    if untested:
        notes.append("No test was possible with a single seed or without variation between seeds.")
    # What ¶ stands for is said in full where a table has it.
    seen = {sign for cell in table.cells() for sign in cell.marks} - {"¶"}
    notes += [f"{sign} {words}" for sign, words in MARKS.items() if sign in seen]
    if any(cell.sample is None for cell in table.cells()):
        notes.append("Holes: 0/3 stands for three planned seeds of which none is finished, — for a cell not planned.")
    return notes
