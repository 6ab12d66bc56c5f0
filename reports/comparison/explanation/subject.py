"""Find the cell to explain: ours, and the printed one that it is compared with."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reports.analysis.results import Results
from reports.papers.paper import Printed
from reports.tables.table import Key, TableCell
from sweep.errors import UserError


@dataclass(frozen=True)
class ExplainedCell:
    """A cell of ours with the printed one that it is compared with."""

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
        """Return whether the paper does not have this setting, so that the printed cell is only the nearest one."""
        return self.study not in (self.printed.key.study, *self.printed.key.elsewhere)


def find(results: Results, name: str) -> ExplainedCell:
    """Find a cell by name.

    name: `study/label/measure`, or `tableN/study/label` followed by `/measure` if the table has several.
    """
    words = name.strip("/").split("/")
    match = re.fullmatch(r"table(\d+)", words[0])
    if len(words) not in ((3, 4) if match else (3,)):
        raise UserError(f"cell {name!r}: must look like digits/sovr/autoattack or table1/cifar10_rn18/sovr")
    every = [cell for table in results.paper.tables for cell in table.cells()]
    if match:
        in_table = [printed for printed in every if printed.table == int(match[1])]
        wanted = [
            printed
            for printed in in_table
            if [printed.key.study, printed.key.label] == words[1:3]
            and (len(words) < 4 or printed.key.measure == words[3])
        ]
        if not wanted:
            cells = sorted({f"{printed.key.study}/{printed.key.label}" for printed in in_table})
            raise UserError(
                f"cell {name!r}: the paper has no such cell; table {match[1]} has {', '.join(cells) or 'none'}"
            )
        return ExplainedCell(_ours(results, wanted[0].key, name), wanted[0])
    study, label, measure = words
    method = results.methods.get((study, label), label)
    of_label = [printed for printed in every if printed.key.label in (label, method)]
    same = [printed for printed in of_label if printed.key.measure == measure]
    own = [printed for printed in same if study in (printed.key.study, *printed.key.elsewhere)]
    compared = any(results.beside(paper).compares(study) for paper in results.papers)
    if not same and study in results.labels and not compared:
        raise UserError(
            f"cell {name!r}: the study {study} names no paper to compare with; name one under `papers:` in its "
            "file, or here with --against"
        )
    if not same:
        measures = sorted({printed.key.measure for printed in of_label})
        labels = sorted({printed.key.label for printed in every if printed.key.measure == measure})
        raise UserError(
            f"cell {name!r}: the paper prints no {measure} of {label}; of {label} it prints "
            f"{', '.join(measures) or 'nothing'}, and {measure} of {', '.join(labels) or 'no method'}"
        )
    printed = (own or same)[0]
    # The table's margins belong to the last epoch, whichever checkpoint its accuracies belong to.
    return ExplainedCell(_ours(results, Key(study, label, measure, None, printed.key.checkpoint), name), printed)


def _ours(results: Results, key: Key, name: str) -> TableCell:
    """Return our cell; fail with the known names if it has no number."""
    cell = results.cell(key)
    if cell.sample is None:
        if key.study not in results.labels:
            studies = ", ".join(results.labels) or "no study"
            raise UserError(f"cell {name!r}: the store has no study {key.study!r}; it has {studies}")
        labels = ", ".join(results.labels[key.study])
        raise UserError(f"cell {name!r}: the store has no number for it; {key.study} has the labels {labels}")
    return cell
