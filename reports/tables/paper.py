"""The tables: the paper's seven, and those of any study, filled from records, with captions that say how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from reports.departures import Departures
from reports.names import attack_name, setting
from reports.papers import sovr as published
from reports.results import MARGIN_NOTES, WORST_OF, Results
from reports.tables.table import MARKS, Block, Column, Key, Rounding, Row, Table, TableCell, with_best

CHECKPOINTS = {
    "last": "the last epoch",
    "best_test": "the epoch with the best PGD accuracy on the test set (best@test)",
    "best_validation": "the epoch with the best PGD accuracy on held-out training images (best@validation)",
}
MAIN_MEASURES = ("autoattack", "pgd-20", "clean")
DECISION = "Welch's t-test, two-sided, α = 0.05, Holm-corrected within the {family}"


def ranking_words(measure: str) -> tuple[str, str]:
    """What a method can be more of by this measure, and against what: robust, under AutoAttack."""
    return ("accurate", "on clean images") if measure == "clean" else ("robust", f"under {attack_name(measure)}")


def checkpoint_note(checkpoint: str, protocol: str) -> str:
    shown = CHECKPOINTS.get(checkpoint, checkpoint)
    text = f"Protocol {protocol}; checkpoint {checkpoint}: {shown}."
    if checkpoint == "best_test":
        text += " Choosing the epoch on the test set, as the paper did, makes all numbers a little too good."
    return text


def reading_notes(table: Table) -> list[str]:
    """How to read bold, underline, n and the marks; only what occurs in the table."""
    family = {"row": "row", "group": "row of a group", "column": "column of a block"}.get(table.compare, "")
    notes = ["Mean±std (ddof=1) over training seeds; n is given where it is not 3."]
    untested = any(cell.untested for cell in table.cells())
    if any(cell.best for cell in table.cells()):
        notes.append(f"Bold: the {table.best} mean of its {family}.")
    if any(cell.tied for cell in table.cells()):
        notes.append(f"Underlined: not significantly different from it ({DECISION.format(family=family)}).")
    elif any(cell.against_best and cell.against_best.significant for cell in table.cells()):
        others = "All others that were tested" if untested else "All others"
        notes.append(f"{others} differ significantly from it ({DECISION.format(family=family)}).")
    if untested:
        notes.append("No test was possible with a single seed or without variation between seeds.")
    # What ¶ stands for is said in full where a table has it.
    seen = {sign for cell in table.cells() for sign in cell.marks} - {"¶"}
    notes += [f"{sign} {words}" for sign, words in MARKS.items() if sign in seen]
    if any(cell.sample is None for cell in table.cells()):
        notes.append("Holes: 0/3 stands for three planned seeds of which none is finished, — for a cell not planned.")
    return notes


def finish(table: Table, notes: Iterable[str]) -> Table:
    """Marks the best, then writes the caption."""
    marked = with_best(table)
    return replace(marked, notes=(*notes, *reading_notes(marked)))


def paper_tables(results: Results) -> list[Table]:
    """The paper's seven tables from our records; one without any of its studies in the store is all holes."""
    tables = []
    departures = Departures(results)
    for source in published.tables():
        table = departures.mark(source.table(results.cell))
        tables.append(finish(table, paper_notes(source, table, results, departures)))
    return tables


def paper_notes(source: published.Published, table: Table, results: Results, departures: Departures) -> list[str]:
    studies = list(dict.fromkeys(cell.key.study for cell in table.cells() if cell.label))
    notes = []
    measured = {cell.key.measure for cell in table.cells()}
    if measured - {"margin", "margin_ratio"}:
        radius = {cell.key.epsilon for cell in table.cells()} - {None}
        notes.append(f"Accuracy in percent on test data; attacks Linf, ε = {', '.join(sorted(map(str, radius)))}.")
        for checkpoint in dict.fromkeys(results.shown_checkpoint(study) for study in studies):
            protocol = next(
                str(results.data.manifests[study].get("protocol", "paper"))
                for study in studies
                if results.shown_checkpoint(study) == checkpoint
            )
            notes.append(checkpoint_note(checkpoint, protocol))
    else:
        notes.append(f"{margins_note(results, studies)}; lower means larger margins.")
    if "worst" in measured:
        notes.append(f"Worst: the least of {', '.join(attack_name(name) for name in WORST_OF)}, seed by seed.")
    notes += searched_values(table, results, departures)
    departing = departures.sentences(table.cells())
    if departing:
        notes.append(" ".join([f"¶ {MARKS['¶']}", *departing]))
    unmeasured = dict.fromkeys(
        cell.key.study for cell in table.cells() if cell.sample is None and _trained(results, cell)
    )
    if "suite" in source.spec:
        command = "python -m sweep.run --study {} --set evaluation.suite={}"
        notes += [f"Trained, not yet measured: {command.format(study, source.spec['suite'])}." for study in unmeasured]
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


def study_tables(results: Results, study: str) -> list[Table]:
    """The main table of a study, then what else its evaluations and diagnostics allow."""
    labels = results.labels[study]
    checkpoint = results.shown_checkpoint(study)
    tables = [main_table(results, study, checkpoint)]
    builders = (other_checkpoints, various_attacks, larger_radii, margins, margin_ratio)
    for builder in builders:
        table = builder(results, study, list(labels))
        if table is not None and table.filled:
            tables.append(table)
    return tables


def _columns(results: Results, study: str, labels: Iterable[str]) -> tuple[Column, ...]:
    return tuple(Column(results.labels[study][label]) for label in labels)


def _row(
    results: Results,
    study: str,
    header: str,
    labels: Iterable[str],
    measure: str,
    epsilon: str | None = None,
    checkpoint: str | None = None,
    rounding: Rounding | None = None,
) -> Row:
    keys = (Key(study, label, measure, epsilon, checkpoint) for label in labels)
    return Row(header, tuple(results.cell(key, rounding) for key in keys))


def main_table(results: Results, study: str, checkpoint: str) -> Table:
    manifest = results.data.manifests[study]
    labels = list(results.labels[study])
    epsilon = str(manifest.get("epsilon", "8/255"))
    planned = {str(attack["name"]) for attack in manifest.get("attacks") or []}
    present = planned | {name for name, _ in results.attacks(study, checkpoint)}
    measures = [name for name in MAIN_MEASURES if name in present] or ["clean"]
    rows = [_row(results, study, attack_name(name), labels, name, epsilon, checkpoint) for name in measures]
    title = f"{manifest.get('title') or study}: robust and clean accuracy"
    table = Table(f"{study}_main", title, _columns(results, study, labels), (Block("", tuple(rows)),))
    count = " or ".join(f"{number:,}" for number in results.images(table.cells()))
    notes = [
        f"{setting(manifest)}: accuracy in percent on {count or 'the'} test images; attacks Linf, ε = {epsilon}.",
        checkpoint_note(checkpoint, str(manifest.get("protocol", "paper"))),
    ]
    if "autoattack" in measures:
        notes.append("AutoAttack: APGD-CE, APGD-T, FAB-T and Square, one after the other on the survivors.")
    return finish(table, notes)


def other_checkpoints(results: Results, study: str, labels: list[str]) -> Table | None:
    names = results.checkpoints(study)
    if len(names) < 2:
        return None
    rows = [
        _row(results, study, f"{attack_name(measure)}, {name}", labels, measure, None, name)
        for measure in ("autoattack", "clean")
        for name in names
    ]
    table = Table(
        f"{study}_checkpoints",
        f"{_title(results, study)}: the same trainings at each evaluated checkpoint",
        _columns(results, study, labels),
        (Block("", tuple(rows)),),
    )
    notes = [f"{name}: {CHECKPOINTS.get(name, name)}." for name in names]
    return finish(table, [f"Accuracy in percent. {names[0]} is what the other tables show.", *notes])


def various_attacks(results: Results, study: str, labels: list[str]) -> Table | None:
    manifest = results.data.manifests[study]
    epsilon = str(manifest.get("epsilon", "8/255"))
    checkpoint = results.shown_checkpoint(study)
    present = {name for name, radius in results.attacks(study, checkpoint) if radius in ("", epsilon)}
    # Logit scaling and the single parts of AutoAttack have figures of their own, and would make the table too wide.
    measures: list[str] = [name for name in ("clean", "fgsm", "pgd-20", "pgd-100", "cw-100", "spsa") if name in present]
    measures += sorted(name for name in present if name.startswith(("pgd-", "cw-")) and name not in measures)
    if not set(measures) - set(MAIN_MEASURES):
        return None
    measures += ["autoattack"] if "autoattack" in present else []
    measures += ["worst"] if set(WORST_OF) <= present else []
    rows = tuple(
        Row(
            results.labels[study][label],
            tuple(results.cell(Key(study, label, name, epsilon, checkpoint)) for name in measures),
        )
        for label in labels
    )
    columns = tuple(Column("Worst" if name == "worst" else attack_name(name)) for name in measures)
    table = Table(
        f"{study}_attacks",
        f"{_title(results, study)}: various attacks",
        columns,
        (Block("", rows),),
        compare="column",
        corner="Method",
    )
    notes = [f"Accuracy in percent; Linf, ε = {epsilon}.", checkpoint_note(checkpoint, str(manifest.get("protocol")))]
    if "worst" in measures:
        notes.append("Worst: the least of the paper's attacks, seed by seed.")
    return finish(table, notes)


def larger_radii(results: Results, study: str, labels: list[str]) -> Table | None:
    manifest = results.data.manifests[study]
    checkpoint = results.shown_checkpoint(study)
    radii = [radius for name, radius in results.attacks(study, checkpoint) if name == "autoattack"]
    if len(radii) < 2:
        return None
    rows = [
        _row(results, study, f"AutoAttack, ε = {radius}", labels, "autoattack", radius, checkpoint)
        for radius in sorted(radii, key=_size)
    ]
    table = Table(
        f"{study}_radii",
        f"{_title(results, study)}: larger radii",
        _columns(results, study, labels),
        (Block("", tuple(rows)),),
    )
    return finish(table, ["Accuracy in percent.", checkpoint_note(checkpoint, str(manifest.get("protocol")))])


def margins(results: Results, study: str, labels: list[str]) -> Table | None:
    # Standard training's margins are taken on clean images: no rival to the others.
    labels = [label for label in labels if results.methods[study, label].partition("+")[0] != "st"]
    row = _row(results, study, "Mean logit margin loss", labels, "margin", None, "last", Rounding(0, 3))
    table = Table(
        f"{study}_margins",
        f"{_title(results, study)}: logit margins on the training images",
        _columns(results, study, labels),
        (Block("", (row,)),),
        best="lowest",
    )
    return finish(table, [f"{margins_note(results, [study])}; lower means larger margins."])


def margins_note(results: Results, studies: Iterable[str]) -> str:
    """Where these margins come from: the two ways to measure them give different numbers."""
    ways = dict.fromkeys(MARGIN_NOTES[results.margin_estimator(study)] for study in studies)
    return f"Adversarial training images at the last epoch, {' or '.join(ways)}"


def margin_ratio(results: Results, study: str, labels: list[str]) -> Table | None:
    if "ovr" not in labels or "at" not in labels:
        return None
    row = _row(results, study, "OVR / CE", ["ovr"], "margin_ratio", None, "last", Rounding(2))
    table = Table(
        f"{study}_margin_ratio",
        f"{_title(results, study)}: logit margin loss of OVR over that of cross-entropy",
        (Column("Ratio"),),
        (Block("", (row,)),),
        best="none",
        compare="none",
    )
    return finish(table, [f"{margins_note(results, [study])}, seed by seed. The paper: 1.56 to 1.87."])


def _size(radius: str) -> Fraction:
    try:
        return Fraction(radius)
    except (ValueError, ZeroDivisionError):
        return Fraction(0)  # a record without a readable radius


def _title(results: Results, study: str) -> str:
    return str(results.data.manifests[study].get("title") or study)
