"""The table of a study that was attacked in several norms, with the share of images that withstand all of them."""

from __future__ import annotations

from dataclasses import replace

from reports.measures import in_norm, measure_in, no_ball
from reports.names import attack_name
from reports.results import Results
from reports.statistics import Sample
from reports.tables.caption import checkpoint_note, finish, twin_notes
from reports.tables.table import Block, Column, Key, Row, Table, TableCell
from trainers.values import NORM_DISPLAYS, NORM_NAMES

FIRST = ("autoattack", "pgd-20")  # the attack to be shown, if it is there in several norms


def norms_table(results: Results, study: str, labels: list[str]) -> Table | None:
    checkpoint = results.shown_checkpoint(study)
    balls = _balls(results, study, checkpoint)
    if len(balls) < 2:
        return None
    words = "Worst over " + ", ".join(sorted(balls))
    attack = attack_name(next(iter(balls.values())).measure.partition("@")[0])
    columns = (*(Column(f"{NORM_DISPLAYS[norm]}, ε = {key.epsilon}") for norm, key in balls.items()), Column(words))
    rows = []
    for label in labels:
        cells = tuple(results.cell(replace(key, label=label)) for key in balls.values())
        rows.append(Row(results.labels[study][label], (*cells, _union(results, cells))))
    table = Table(
        f"{study}_norms",
        f"{results.title(study)}: several norms",
        columns,
        (Block("", tuple(rows)),),
        compare="column",
        corner="Method",
    )
    notes = [
        f"Accuracy in percent under {attack} in each norm.",
        f"{words}: the share of images that withstand the attack in every norm, image by image.",
        checkpoint_note(results, study),
    ]
    return finish(table, [*notes, *twin_notes(results, table)])


def apart_table(results: Results, study: str, labels: list[str]) -> Table | None:
    """What a study asks for in another norm or at another radius than its own, and no other table shows."""
    checkpoint, own = results.shown_checkpoint(study), results.norm(study)
    shown = {(key.measure, key.epsilon) for key in _balls(results, study, checkpoint).values()}
    keys, columns = [], []
    for one in results.asked_attacks(study):
        measure = measure_in(in_norm(one.name, one.norm), own)
        of_its_own = no_ball(one.name) or (one.norm == own and (one.epsilon == results.epsilon(study)))
        radii = one.name == "autoattack" and one.norm == own  # have a table of their own
        if not (of_its_own or radii or not one.epsilon or (measure, one.epsilon) in shown):
            keys.append(Key(study, "", measure, one.epsilon, checkpoint))
            columns.append(Column(f"{attack_name(one.name)}, {NORM_DISPLAYS[one.norm]}, ε = {one.epsilon}"))
    if not keys:
        return None
    rows = tuple(
        Row(results.labels[study][label], tuple(results.cell(replace(key, label=label)) for key in keys))
        for label in labels
    )
    table = Table(
        f"{study}_apart",
        f"{results.title(study)}: other norms and radii",
        tuple(columns),
        (Block("", rows),),
        compare="column",
        corner="Method",
    )
    notes = ["Accuracy in percent.", checkpoint_note(results, study), *twin_notes(results, table)]
    return finish(table, notes)


def _balls(results: Results, study: str, checkpoint: str) -> dict[str, Key]:
    """By norm, where one attack was run in several: at the study's own radius, in others at the asked or smallest."""
    own, asked = results.norm(study), results.asked_attacks(study)
    found: dict[str, dict[str, Key]] = {}
    for measure, radius in results.attacks(study, checkpoint):
        name, _, norm = measure.partition("@")
        norm = norm or own
        wanted = {one.epsilon for one in asked if one.name == name and one.norm == norm}
        wanted = {results.epsilon(study)} if norm == own else wanted or {radius}
        if radius in wanted:
            found.setdefault(name, {}).setdefault(norm, Key(study, "", measure, radius, checkpoint))
    several = {name: balls for name, balls in found.items() if len(balls) > 1}
    chosen = next((several[name] for name in (*FIRST, *sorted(several)) if name in several), {})
    return {norm: chosen[norm] for norm in NORM_NAMES if norm in chosen}


def _union(results: Results, cells: tuple[TableCell, ...]) -> TableCell:
    """Of the seeds that were attacked in every norm, on the same images."""
    first = cells[0]
    key = replace(first.key, measure="union")
    values = {}
    for planned in results.seeds(key.study, key.label):
        if not all(planned.seed in cell.seeds for cell in cells):
            continue
        checkpoint = key.checkpoint or results.shown_checkpoint(key.study)
        scores = [
            results.evaluation(key.study, planned.trial, checkpoint, cell.key.measure, cell.key.epsilon or "")
            for cell in cells
        ]
        verdicts = [results.data.verdicts(score.path) for score in scores if score is not None]
        windows = {str(results.data.settings(score.path).get("images")) for score in scores if score is not None}
        if len(verdicts) == len(cells) and len(windows) == 1:
            standing = verdicts[0]
            for one in verdicts[1:]:
                standing = standing & one
            values[planned.seed] = 100 * float(standing.mean())
    sample = Sample.of([values[seed] for seed in sorted(values)]) if values else None
    return replace(first, key=key, sample=sample, seeds=tuple(sorted(values)), warned=any(c.warned for c in cells))
