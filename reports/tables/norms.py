"""Tables of attacks in several norms, with the share of images that survive in all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reports.analysis.measures import in_norm, measure_in, no_ball
from reports.analysis.names import attack_name
from reports.analysis.results import Results
from reports.analysis.statistics import Sample
from reports.tables.caption import checkpoint_note, finish, twin_notes
from reports.tables.table import Block, Column, Key, Row, Table, TableCell
from trainers.values import NORM_DISPLAYS, NORM_NAMES

FIRST = ("autoattack", "pgd-20")  # the preferred attacks for the table


def norms_table(results: Results, study: str, labels: list[str]) -> Table | None:
    """Return the table of one attack in several norms, or None if no attack was run in several."""
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
    """Return the table of attacks in other norms or at other radii than the study's own that no other table shows."""
    checkpoint, own = results.shown_checkpoint(study), results.norm(study)
    in_norms_table = {(key.measure, key.epsilon) for key in _balls(results, study, checkpoint).values()}
    keys, columns = [], []
    for attack in results.asked_attacks(study):
        measure = measure_in(in_norm(attack.name, attack.norm), own)
        in_own_ball = no_ball(attack.name) or (attack.norm == own and (attack.epsilon == results.epsilon(study)))
        in_radii_table = attack.name == "autoattack" and attack.norm == own
        if not (in_own_ball or in_radii_table or not attack.epsilon or (measure, attack.epsilon) in in_norms_table):
            keys.append(Key(study, "", measure, attack.epsilon, checkpoint))
            columns.append(Column(f"{attack_name(attack.name)}, {NORM_DISPLAYS[attack.norm]}, ε = {attack.epsilon}"))
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
    """Return by norm the cells of an attack that was run in several norms; empty if there is none.

    The radius is the study's own in its own norm, and elsewhere one that the study asks for, or the smallest.
    """
    own, requested = results.norm(study), results.asked_attacks(study)
    balls_by_attack: dict[str, dict[str, Key]] = {}
    for measure, radius in results.attacks(study, checkpoint):
        name, _, norm = measure.partition("@")
        norm = norm or own
        radii = {attack.epsilon for attack in requested if attack.name == name and attack.norm == norm}
        radii = {results.epsilon(study)} if norm == own else radii or {radius}
        if radius in radii:
            balls_by_attack.setdefault(name, {}).setdefault(norm, Key(study, "", measure, radius, checkpoint))
    several = {name: balls for name, balls in balls_by_attack.items() if len(balls) > 1}
    chosen = next((several[name] for name in (*FIRST, *sorted(several)) if name in several), {})
    return {norm: chosen[norm] for norm in NORM_NAMES if norm in chosen}


def _union(results: Results, cells: tuple[TableCell, ...]) -> TableCell:
    """Return the share of images that survive in every norm, for seeds attacked in all of them on the same images."""
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
            survives = np.logical_and.reduce(verdicts)
            values[planned.seed] = 100 * float(survives.mean())
    sample = Sample.of([values[seed] for seed in sorted(values)]) if values else None
    return replace(first, key=key, sample=sample, seeds=tuple(sorted(values)), warned=any(c.warned for c in cells))
