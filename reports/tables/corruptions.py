"""The table of corrupted test images: the mean of each corruption over its severities, and the mean over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reports.analysis.results import Results
from reports.analysis.statistics import Sample
from reports.tables.caption import checkpoint_note, finish, outside_notes, twin_notes
from reports.tables.table import Block, Column, Key, Row, Table, TableCell
from trainers.attacks.corruption import CORRUPTIONS


def corruptions_table(results: Results, study: str, labels: list[str]) -> Table | None:
    """Return the table, or None if no model was evaluated on corrupted images."""
    checkpoint = results.shown_checkpoint(study)
    present = [name for name, _ in results.attacks(study, checkpoint) if name.startswith("corruption-")]
    groups = {name: [attack for attack in present if attack.split("-")[1] == name] for name in CORRUPTIONS}
    groups = {name: names for name, names in groups.items() if names}
    if not groups:
        return None

    def row(header: str, measures: Sequence[str]) -> Row:
        return Row(header, tuple(_mean(results, Key(study, label, "", None, checkpoint), measures) for label in labels))

    rows = [row(name.replace("_", " ").capitalize(), measures) for name, measures in groups.items()]
    severities = len(present) / len(groups)
    mean = row(f"Mean over {len(groups)} x {severities:g}", present)
    table = Table(
        f"{study}_corruptions",
        f"{results.title(study)}: corrupted test images",
        tuple(Column(results.labels[study][label]) for label in labels),
        (Block("", tuple(rows)), Block("", (mean,))),
    )
    notes = [
        "Accuracy in percent on corrupted test images (Hendrycks & Dietterich 2019), each a mean over its severities.",
        checkpoint_note(results, study),
    ]
    return finish(table, [*notes, *twin_notes(results, table), *outside_notes(results, table)])


def _mean(results: Results, key: Key, measures: Sequence[str]) -> TableCell:
    """Return the mean over the measures by seed, for seeds that have all of them."""
    cells = [results.cell(replace(key, measure=measure)) for measure in measures]
    by_measure = [dict(zip(cell.seeds, cell.sample.values, strict=True)) if cell.sample else {} for cell in cells]
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in by_measure)))
    values = [sum(by_seed[seed] for by_seed in by_measure) / len(by_measure) for seed in seeds]
    return replace(cells[0], sample=Sample.of(values) if values else None, seeds=tuple(seeds))
