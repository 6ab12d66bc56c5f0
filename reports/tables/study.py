"""The tables of a study: the main one, and others that its evaluations and diagnostics allow."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from reports.analysis.measures import no_ball
from reports.analysis.names import attack_name, setting
from reports.analysis.overfitting import cell as overfitting_cell
from reports.analysis.overfitting import declines
from reports.analysis.results import Results
from reports.analysis.transfers import NOTE as WORST_NOTE
from reports.analysis.transfers import Transfers
from reports.tables.caption import (
    checkpoint_note,
    checkpoint_text,
    finish,
    margins_note,
    origin_notes,
    outside_notes,
    tuning_notes,
    twin_notes,
    unlike_notes,
)
from reports.tables.corruptions import corruptions_table
from reports.tables.norms import apart_table, norms_table
from reports.tables.table import Block, Column, Key, Rounding, Row, Table
from reports.tables.transfers import transfer_table
from trainers.values import NORM_DISPLAYS

MAIN_MEASURES = ("autoattack", "pgd-20", "clean")


def study_tables(results: Results, study: str) -> list[Table]:
    """Return the study's tables, the main one first; others only if they have numbers."""
    labels = results.labels[study]
    tables = [main_table(results, study)]
    builders = (
        other_checkpoints,
        various_attacks,
        larger_radii,
        norms_table,
        apart_table,
        corruptions_table,
        transfer_table,
        margins,
        margin_ratio,
    )
    for builder in builders:
        table = builder(results, study, list(labels))
        if table is not None and table.filled:
            tables.append(table)
    return tables


def _finish(results: Results, table: Table, notes: Iterable[str]) -> Table:
    unlike = unlike_notes(results, {cell.key.study: None for cell in table.cells()})
    columns = [*tuning_notes(results, table), *twin_notes(results, table), *outside_notes(results, table)]
    return finish(table, [*unlike, *notes, *columns])


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


def main_table(results: Results, study: str) -> Table:
    """Return the table of robust and clean accuracy."""
    labels = list(results.labels[study])
    checkpoint, epsilon = results.shown_checkpoint(study), results.epsilon(study)
    measures = main_measures(results, study)
    rows = [_row(results, study, attack_name(name), labels, name, epsilon, checkpoint) for name in measures]
    transfers = Transfers(results, study)
    worst = Row("Worst known", tuple(transfers.worst_cell(label) for label in labels), compared=False)
    has_worst = any(cell.sample is not None for cell in worst.cells)
    if has_worst:
        rows.insert(measures.index("autoattack") + 1, worst)
    study_declines = declines(results, study)
    for decline in study_declines:
        cells = tuple(overfitting_cell(results, decline, label) for label in labels)
        rows.append(Row(decline.header, cells, compared=False))
    title = f"{results.title(study)}: robust and clean accuracy"
    table = Table(f"{study}_main", title, _columns(results, study, labels), (Block("", tuple(rows)),))
    count = " or ".join(f"{number:,}" for number in results.images(table.cells()))
    notes = [
        f"{setting(results.data.manifests[study])}: accuracy in percent on {count or 'the'} test images; attacks "
        f"{NORM_DISPLAYS[results.norm(study)]}, ε = {epsilon}.",
        checkpoint_note(results, study),
    ]
    if "autoattack" in measures:
        notes.append("AutoAttack: APGD-CE, APGD-T, FAB-T and Square, one after the other on the survivors.")
    notes += [WORST_NOTE] if has_worst else []
    notes += [decline.note for decline in study_declines]
    return _finish(results, table, [*notes, *origin_notes(results, study)])


def main_measures(results: Results, study: str) -> list[str]:
    """Return the measures of the main table: AutoAttack, PGD-20 and clean accuracy, as far as they exist.

    A study that lists its attacks gets all of those in its own ball, in its order. Methods are ranked and tested by the
    first measure, which is AutoAttack if the study has it.
    """
    own, epsilon, checkpoint = results.norm(study), results.epsilon(study), results.shown_checkpoint(study)
    requested = [
        attack.name
        for attack in results.asked_attacks(study)
        if no_ball(attack.name) or (attack.norm == own and attack.epsilon in ("", epsilon))
    ]
    present = {*requested, *(name for name, radius in results.attacks(study, checkpoint) if radius in ("", epsilon))}
    usual = [name for name in MAIN_MEASURES if name in present]
    if not results.data.manifests[study].evaluation.attacks:
        return usual or ["clean"]
    # Logit scaling has a figure and corruptions have a table of their own.
    listed = [
        name for name in requested if name not in usual and not name.startswith(("logit-scaling-", "corruption-"))
    ]
    robust = [name for name in dict.fromkeys(requested) if name in listed or name == "pgd-20"]
    return [*(["autoattack"] if "autoattack" in usual else []), *robust, *(["clean"] if "clean" in usual else [])]


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
        f"{results.title(study)}: the same trainings at each evaluated checkpoint",
        _columns(results, study, labels),
        (Block("", tuple(rows)),),
    )
    notes = [f"{name}: {checkpoint_text(name)}." for name in names]
    return _finish(results, table, [f"Accuracy in percent. {names[0]} is what the other tables show.", *notes])


def various_attacks(results: Results, study: str, labels: list[str]) -> Table | None:
    checkpoint, epsilon = results.shown_checkpoint(study), results.epsilon(study)
    present = {name for name, radius in results.attacks(study, checkpoint) if radius in ("", epsilon)}
    # Logit scaling and the components of AutoAttack have figures of their own, and would make the table too wide.
    attacks = ("clean", "fgsm", "pgd-20", "pgd-100", "cw-100", "spsa", "quick")
    measures: list[str] = [name for name in attacks if name in present]
    measures += sorted(name for name in present if name.startswith(("pgd-", "cw-")) and name not in measures)
    if not set(measures) - {*MAIN_MEASURES, *main_measures(results, study)}:
        return None
    measures += ["autoattack"] if "autoattack" in present else []
    measures += ["worst"] if results.paper.worst_of and set(results.paper.worst_of) <= present else []
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
        f"{results.title(study)}: various attacks",
        columns,
        (Block("", rows),),
        compare="column",
        corner="Method",
    )
    notes = [
        f"Accuracy in percent; {NORM_DISPLAYS[results.norm(study)]}, ε = {epsilon}.",
        checkpoint_note(results, study),
    ]
    if "worst" in measures:
        names = ", ".join(map(attack_name, results.paper.worst_of))
        notes.append(f"Worst: the least of {names}, seed by seed.")
    return _finish(results, table, notes)


def larger_radii(results: Results, study: str, labels: list[str]) -> Table | None:
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
        f"{results.title(study)}: larger radii",
        _columns(results, study, labels),
        (Block("", tuple(rows)),),
    )
    return _finish(results, table, ["Accuracy in percent.", checkpoint_note(results, study)])


def margins(results: Results, study: str, labels: list[str]) -> Table | None:
    labels = [label for label in labels if results.adversarial(study, label)]
    row = _row(results, study, "Mean logit margin loss", labels, "margin", None, "last", Rounding(0, 3))
    table = Table(
        f"{study}_margins",
        f"{results.title(study)}: logit margins on the training images",
        _columns(results, study, labels),
        (Block("", (row,)),),
        best="lowest",
    )
    return _finish(results, table, [f"{margins_note(results, [study])}; lower means larger margins."])


def margin_ratio(results: Results, study: str, labels: list[str]) -> Table | None:
    ratio = results.paper.margin_ratio
    if ratio is None or not results.compares(study) or not {ratio.over.label, ratio.under.label} <= set(labels):
        return None
    over, under = ratio.over, ratio.under
    row = _row(results, study, f"{over.name} / {under.name}", [over.label], "margin_ratio", None, "last", Rounding(2))
    table = Table(
        f"{study}_margin_ratio",
        f"{results.title(study)}: logit margin loss of {over.words} over that of {under.words}",
        (Column("Ratio"),),
        (Block("", (row,)),),
        best="none",
        compare="none",
    )
    notes = [f"{margins_note(results, [study])}, seed by seed."]
    printed = sorted(results.paper.printed("margin_ratio"), key=lambda cell: cell.sample.mean)
    if printed:
        notes.append(f"The paper: {printed[0].text} to {printed[-1].text}.")
    return _finish(results, table, notes)


def _size(radius: str) -> Fraction:
    try:
        return Fraction(radius)
    except (ValueError, ZeroDivisionError):
        return Fraction(0)  # the record has no valid radius
