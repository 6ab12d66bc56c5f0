"""A new paper's folder: every file that a comparison needs, commented, with numbers to replace."""

from __future__ import annotations

import re
from pathlib import Path

from sweep.errors import UserError
from sweep.store.files import write_text

PAPER = """\
# What a report must know of the paper beside its tables and claims.
title: {name}  # as printed
authors: A. Author, B. Author
year: 2024

epsilon: 8/255            # the radius where a table names none
checkpoint: best_test     # its choice of the epoch: best_test, best_validation or last
baseline: at              # the method that the others are tested against
proposed: trades          # the paper's own
method_order: [at, trades]  # of columns; what is not here follows by name
displays: {{trades: TRADES}}  # names of labels in tables, where they are not the label in capitals
"""
TABLE = """\
# One printed table. study, label, measure, epsilon and checkpoint say which number a cell is; each may stand at the
# table, a block, a row or a column. Measures: clean, autoattack, pgd-20 and other names of attacks.
table: 1
name: main                # in file names and LaTeX labels
source: tab:main          # the label in the paper's own source
title: Clean and robust accuracy on CIFAR10
unit: percent
n: null                   # seeds behind each number; null: one, or not said
best: highest
compare: row              # which cells are ranked together: row, column or none
study: my_study           # the study whose numbers fill the cells
epsilon: 8/255
columns:
  - {header: AT, label: at}
  - {header: TRADES, label: trades}
blocks:
  - header: ""
    rows:
      # As printed: "51.9", with a spread "51.9±0.5", bold "**51.9**". These two rows are to be replaced.
      - {header: Clean, measure: clean, cells: ["0.0", "0.0"]}
      - {header: AutoAttack, measure: autoattack, cells: ["0.0", "0.0"]}
"""
CLAIMS = """\
# What the paper says, each with a rule that decides it. settings: names of studies, or a group below.
settings:
  all: [my_study]
claims:
  - id: trades-beats-at
    section: 1
    claim: TRADES is more robust than AT under AutoAttack
    kind: greater         # first above second, significantly; docs/PAPERS.md lists the kinds
    needs: all            # of the settings: all, most or a number
    settings: all
    measure: autoattack
    first: trades
    second: at
"""


def write_skeleton(name: str, folder: Path) -> list[Path]:
    if not re.fullmatch(r"[\w-]+", name):
        raise UserError(f"{name!r}: a paper is named by letters, digits, _ and -")
    target = folder / name
    if target.exists():
        raise UserError(f"{target} is there already; give another name, or delete it first")
    target.mkdir(parents=True)
    written = []
    for file, text in (("paper.yaml", PAPER.format(name=name)), ("table1_main.yaml", TABLE), ("claims.yaml", CLAIMS)):
        write_text(target / file, text)
        written.append(target / file)
    return written
