"""The paper's tables as data, against the paper's source where it is at hand."""

import os
import re
from pathlib import Path

import pytest
from hand_made import PAPER
from papers_store import IRREGULAR

from reports.papers.paper import PaperTable
from reports.tables.table import with_best

TABLES = PAPER.tables


def paper_source() -> str:
    folder = os.environ.get("ROBUSTSWEEP_SHARED")
    if not folder:
        pytest.skip("ROBUSTSWEEP_SHARED is not set: the paper's source is not at hand")
    return (Path(folder) / "paper.tex").read_text(encoding="utf-8")


def printed_in_paper(source: str, label: str) -> list[str]:
    """The numbers of the tabular in the same table environment as the label; ** where the paper has bold."""
    place = source.index(f"\\label{{{label}}}")
    start = source.rindex("\\begin{table", 0, place)
    environment = source[start : source.index("\\end{table", place)]
    tabular = environment[environment.index("\\begin{tabular}") : environment.index("\\end{tabular}")]
    tabular = re.sub(r"\\cmidrule\([lr]+\)\{[\d-]+\}|\\multicolumn\{\d+\}\{c\}", "", tabular)
    found = []
    for line in tabular.split("\\\\"):
        for cell in line.split("&"):
            plain = re.sub(r"[${}\s]|\\(top|mid|bottom)rule|\\bm", "", cell).replace("\\pm", "±")
            if re.fullmatch(r"-?\d+(\.\d+)?(±\d+(\.\d+)?)?", plain):
                found.append(f"**{plain}**" if "\\bm" in cell else plain)
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_cell_is_as_printed_in_the_paper(table):
    stored = [text for block in table.spec["blocks"] for row in block["rows"] for text in row["cells"]]
    assert stored == printed_in_paper(paper_source(), table.source)


def test_there_are_seven_tables_with_all_cells():
    assert [table.number for table in TABLES] == [1, 2, 3, 4, 5, 6, 7]
    assert [len(table.cells()) for table in TABLES] == [72, 20, 28, 4, 196, 72, 6]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_papers_numbers_rendered_by_our_tables_are_the_papers_tables(table):
    rendered = with_best(table.as_printed())
    cells = table.cells()
    assert [cell.text for cell in rendered.cells()] == [cell.text for cell in cells]
    if any(cell.bold for cell in cells):
        assert [cell.best for cell in rendered.cells()] == [cell.bold for cell in cells]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_our_rounding_is_the_papers(table):
    ours = {cell.text: table.rounding.text(cell.sample) for cell in table.cells() if cell.text not in IRREGULAR}
    assert list(ours.values()) == list(ours)


def test_every_contradiction_has_a_note_and_every_reference_a_contradiction():
    notes = PAPER.contradictions
    assert [note.number for note in notes] == list(range(1, 23))
    assert all(note.paper and note.decision for note in notes)
    for table in TABLES:
        assert set(table.spec["contradictions"]) <= {note.number for note in notes}


def test_every_table_says_n_and_unit():
    assert {table.unit for table in TABLES} == {"percent", "logits", "ratio"}
    assert [table.spec["n"] for table in TABLES] == [3, 3, 3, None, 3, 3, 3]


def test_cells_know_the_hyperparameters_they_were_made_with():
    cells = {(c.key.study, c.key.label): dict(c.key.hyperparameters) for c in TABLES[0].cells()}
    assert cells["cifar10_rn18", "sovr"] == {"M": 40, "lam": 0.4}
    # Contradiction 7: the text says 0.6, the numbers are those of 0.5.
    assert cells["cifar100_rn18", "sovr"] == {"M": 50, "lam": 0.5}
    assert cells["svhn_rn18", "tsovr"] == {"M": 20, "lam": 0.8, "beta": 6.0}
    assert cells["svhn_rn18", "gairat"] == {"Lambda": 3.0, "warmup_epochs": 50}
    assert cells["svhn_rn18", "at"] == {}
    combined = {c.key.label: dict(c.key.hyperparameters) for c in TABLES[1].cells()}
    assert combined["tsovr+ddpm"]["lam"] == 1.6 and combined["sovr+seat"] == {"M": 50, "lam": 0.5}


def test_the_two_columns_of_the_table_on_lambda_are_two_cells():
    lams = [dict(cell.key.hyperparameters).get("lam") for cell in TABLES[6].cells()]
    assert lams == [None, 0.5, 0.6, None, 0.5, 0.6]


def test_a_misprinted_cell_is_refused():
    table = TABLES[3]
    spec = {**table.spec, "blocks": [{**table.spec["blocks"][0]}]}
    spec["blocks"][0]["rows"] = [{"header": "x", "label": "ovr", "cells": ["1.87", "1,78", "1.56", "1.76"]}]
    with pytest.raises(ValueError, match="1,78"):
        PaperTable(4, "x", "x", "ratio", spec).cells()
