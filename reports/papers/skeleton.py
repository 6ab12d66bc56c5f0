"""The skeleton of a paper's folder: commented files with placeholder numbers."""

from __future__ import annotations

import re
from pathlib import Path

from sweep.errors import UserError
from sweep.store.files import write_text

PAPER = """\
# General facts about the paper. Tables and claims are in the other files.
title: {name}  # as printed
authors: A. Author, B. Author
year: 2024

epsilon: 8/255            # radius of tables that give none
checkpoint: best_test     # the epoch it evaluates: best_test, best_validation or last
baseline: at              # the method that others are tested against
proposed: trades          # the paper's own method
method_order: [at, trades]  # of columns; methods not listed follow by name
displays: {{trades: TRADES}}  # names of labels in tables, if not the label in capitals
"""
TABLE = """\
# One printed table. study, label, measure, epsilon and checkpoint identify the number in a cell; each may be set by the
# table, a block, a row or a column. Measures: clean, autoattack, pgd-20 and other names of attacks.
table: 1
name: main                # in file names and LaTeX labels
source: tab:main          # the label in the paper's own source
title: Clean and robust accuracy on CIFAR10
unit: percent
n: null                   # seeds behind each number; null if one or unknown
best: highest
compare: row              # cells that are ranked together: row, column or none
study: my_study           # the study whose numbers fill the cells
epsilon: 8/255
columns:
  - {header: AT, label: at}
  - {header: TRADES, label: trades}
blocks:
  - header: ""
    rows:
      # As printed: "51.9", with a spread "51.9±0.5", bold "**51.9**". Replace these two rows.
      - {header: Clean, measure: clean, cells: ["0.0", "0.0"]}
      - {header: AutoAttack, measure: autoattack, cells: ["0.0", "0.0"]}
"""
CLAIMS = """\
# The paper's claims, each with the rule that decides it. settings: names of studies, or a group defined here.
settings:
  all: [my_study]
claims:
  - id: trades-beats-at
    section: 1
    claim: TRADES is more robust than AT under AutoAttack
    kind: greater         # first above second, significantly; docs/PAPERS.md lists the kinds
    needs: all            # settings in which it must hold: all, most or a number
    settings: all
    measure: autoattack
    first: trades
    second: at
"""


def write_skeleton(name: str, folder: Path) -> list[Path]:
    """Create `folder`/`name` with the files of a paper, and return their paths."""
    if not re.fullmatch(r"[\w-]+", name):
        raise UserError(f"{name!r}: a paper's name may contain only letters, digits, _ and -")
    target = folder / name
    if target.exists():
        raise UserError(f"{target} already exists; choose another name, or delete it first")
    target.mkdir(parents=True)
    written = []
    for file, text in (("paper.yaml", PAPER.format(name=name)), ("table1_main.yaml", TABLE), ("claims.yaml", CLAIMS)):
        write_text(target / file, text)
        written.append(target / file)
    return written
