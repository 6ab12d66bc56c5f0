"""The cell of ours that is explained, and the printed one that it is held against."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reports.papers.paper import Printed
from reports.results import Results
from reports.tables.table import Key, TableCell
from sweep.errors import UserError


@dataclass(frozen=True)
class Subject:
    """Our cell and the printed one that it is held against."""

    cell: TableCell
    printed: Printed

    @property
    def study(self) -> str:
        return self.cell.key.study

    @property
    def label(self) -> str:
        return self.cell.label

    @property
    def nearest_only(self) -> bool:
        return self.study not in (self.printed.key.study, *self.printed.key.elsewhere)


def find(results: Results, name: str) -> Subject:
    """`study/label/measure`, or `tableN/study/label` with a measure where the table has several."""
    words = name.strip("/").split("/")
    match = re.fullmatch(r"table(\d+)", words[0])
    if len(words) not in ((3, 4) if match else (3,)):
        raise UserError(f"cell {name!r}: must look like digits/sovr/autoattack or table1/cifar10_rn18/sovr")
    every = [cell for table in results.paper.tables for cell in table.cells()]
    if match:
        wanted = [
            one
            for one in every
            if (one.table, one.key.study, one.key.label) == (int(match[1]), *words[1:3])
            and (len(words) < 4 or one.key.measure == words[3])
        ]
        if not wanted:
            known = sorted({f"{one.key.study}/{one.key.label}" for one in every if one.table == int(match[1])})
            raise UserError(
                f"cell {name!r}: the paper has no such cell; table {match[1]} has {', '.join(known) or 'none'}"
            )
        return Subject(_ours(results, wanted[0].key, name), wanted[0])
    study, label, measure = words
    method = results.methods.get((study, label), label)
    same = [one for one in every if one.key.measure == measure and one.key.label in (label, method)]
    own = [one for one in same if study in (one.key.study, *one.key.elsewhere)]
    compared = any(results.beside(paper).compares(study) for paper in results.papers)
    if not same and study in results.labels and not compared:
        raise UserError(
            f"cell {name!r}: the study {study} names no paper to compare with; name one under `papers:` in its "
            "file, or here by --against"
        )
    if not same:
        of_label = sorted({one.key.measure for one in every if one.key.label in (label, method)})
        labels = sorted({one.key.label for one in every if one.key.measure == measure})
        raise UserError(
            f"cell {name!r}: the paper prints no {measure} of {label}; of {label} it prints "
            f"{', '.join(of_label) or 'nothing'}, and {measure} of {', '.join(labels) or 'no method'}"
        )
    printed = (own or same)[0]
    # A margin stands in the table as the last epoch has it, whichever epoch's weights accuracies are of.
    return Subject(_ours(results, Key(study, label, measure, None, printed.key.checkpoint), name), printed)


def _ours(results: Results, key: Key, name: str) -> TableCell:
    cell = results.cell(key)
    if cell.sample is None:
        if key.study not in results.labels:
            known = ", ".join(results.labels) or "no study"
            raise UserError(f"cell {name!r}: the store has no study {key.study!r}; it has {known}")
        known = ", ".join(results.labels[key.study])
        raise UserError(f"cell {name!r}: no number of ours is there; {key.study} has the labels {known}")
    return cell
