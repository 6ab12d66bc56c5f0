"""tables.tex, a document of booktabs tables that compiles as it is, and numbers.tex, one macro per number."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from reports.results import Results
from reports.tables.table import Table, TableCell, p_text

PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[utf8]{inputenc}
\usepackage[a4paper,landscape,margin=15mm]{geometry}
\usepackage{amsmath,bm,booktabs,graphicx}
% A table wider than the page is scaled down to it; a narrow one keeps its size.
\newsavebox{\tablebox}
\newcommand{\fitted}[1]{\sbox{\tablebox}{#1}\ifdim\wd\tablebox>\linewidth
  \resizebox{\linewidth}{!}{\usebox{\tablebox}}\else\usebox{\tablebox}\fi}
\setlength{\belowcaptionskip}{4pt}
\begin{document}
"""
APART = "\ue000"  # of no font, so of no name
SPECIAL = {
    APART: "{}",
    # At the start of a row these would be an argument of the line break before it.
    **{"[": "{[}", "]": "{]}", "*": "{*}"},
    **{"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}"},
    **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$", '"': r"''"},
    **{"±": r"$\pm$", "≠": r"$\neq$", "≥": r"$\geq$", "≤": r"$\leq$", "∞": r"$\infty$", "→": r"$\to$", "−": "$-$"},
    **{"ε": r"$\varepsilon$", "λ": r"$\lambda$", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "κ": r"$\kappa$"},
    **{"Λ": r"$\Lambda$", "Δ": r"$\Delta$", "—": "---", "–": "--", "…": r"\dots{}", "’": "'", "“": "``", "”": "''"},
    **{
        "†": r"$^\dagger$",
        "‡": r"$^\ddagger$",
        "≈": r"$^\approx$",
        "§": r"$^\S$",
        "¶": r"$^\P$",
        "`": "'",
        "·": r"$\cdot$",
        "×": r"$\times$",
    },
}
DIGITS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


def escape(text: str) -> str:
    """Names come from study files and plug-ins. What pdflatex's standard fonts lack becomes a question mark."""
    # TeX would join two hyphens to a dash, and an option copied from the PDF would be none.
    apart = re.sub("-(?=-)", "-" + APART, text)
    return "".join(SPECIAL.get(sign, sign if _printable(sign) else "?") for sign in apart)


def _printable(sign: str) -> bool:
    return " " <= sign <= "~" or ("À" <= sign <= "ÿ" and sign not in "ÐÞðþ÷")


def cell_text(cell: TableCell) -> str:
    noted = escape(cell.marks)
    if cell.sample is None:
        return escape(cell.hole) + noted
    text = cell.text.replace("±", r"\pm ")
    text = rf"$\bm{{{text}}}$" if cell.best else f"${text}$"
    text = rf"\underline{{{text}}}" if cell.tied else text
    return text + noted + (f" ($n={cell.shown_n}$)" if cell.shown_n is not None else "")


def render(table: Table) -> str:
    width = len(table.columns) + 1
    lines = [rf"% {_label(table.name)}", r"\begin{table}[htbp]", r"\centering"]
    title = f"Table {table.number} of the paper: {table.title}" if table.number else table.title
    lines += [rf"\caption{{{escape(title)}. \footnotesize {escape(' '.join(table.notes))}}}"]
    lines += [r"\fitted{%", rf"\begin{{tabular}}{{l*{{{width - 1}}}{{c}}}}", r"\toprule"]
    lines += _groups(table)
    headers = " & ".join([escape(table.corner), *(escape(column.header) for column in table.columns)])
    lines += [headers + r" \\", r"\midrule"]
    for index, block in enumerate(table.blocks):
        if index:
            lines.append(r"\midrule")
        if block.header:
            lines.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(block.header)}}} \\")
        lines += [" & ".join([escape(row.header), *map(cell_text, row.cells)]) + r" \\" for row in block.rows]
    lines += [r"\bottomrule", r"\end{tabular}}", rf"\label{{tab:{_label(table.name)}}}", r"\end{table}"]
    return "\n".join(lines)


def _groups(table: Table) -> list[str]:
    if not any(column.group for column in table.columns):
        return []
    heads, rules, position = [""], [], 2
    for group, columns in groupby(table.columns, key=lambda column: column.group):
        span = len(list(columns))
        heads.append(rf"\multicolumn{{{span}}}{{c}}{{{escape(group)}}}")
        rules.append(rf"\cmidrule(lr){{{position}-{position + span - 1}}}")
        position += span
    return [" & ".join(heads) + r" \\", "".join(rules)]


def _label(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", name)


def document(tables: Iterable[Table]) -> str:
    bodies = [render(table) for table in tables]
    # LaTeX holds only some tables in flight at a time; a page break after each few keeps the order and the memory.
    body = "\n\\clearpage\n".join("\n".join(bodies[start : start + 4]) for start in range(0, len(bodies), 4))
    return PREAMBLE + (body or "No study is in the store yet.") + "\n\\end{document}\n"


def numbers(results: Results, tables: Iterable[Table]) -> str:
    """`\\StudyLabelMeasure` is mean±std; with Mean, Std, N and P (against the row's best, Welch, Holm) its parts."""
    lines = ["% One macro per number. \\input this file and a text never goes stale."]
    taken: dict[str, list[str]] = {}
    for table in tables:
        for cell in table.cells():
            if cell.sample is None or not cell.label:
                continue
            words = macro_words(results, cell)
            name = "".join(map(_letters, words))
            # Two names may differ in signs that a macro's name cannot hold; the same cell in two tables is one number.
            while name in taken and taken[name] != words:
                name += "X"
            if name in taken:
                continue
            taken[name] = words
            mean, spread = cell.rounding.parts(cell.sample)
            lines.append(_macro(name, f"${mean}\\pm {spread}$" if spread else f"${mean}$"))
            lines.append(_macro(f"{name}Mean", f"${mean}$"))
            if spread:
                lines.append(_macro(f"{name}Std", f"${spread}$"))
            lines.append(_macro(f"{name}N", str(cell.sample.n)))
            if cell.against_best is not None and cell.against_best.deciding is not None:
                lines.append(_macro(f"{name}P", f"${p_text(cell.against_best.deciding)}$"))
    return "\n".join(lines) + "\n"


def _macro(name: str, value: str) -> str:
    return rf"\newcommand{{\{name}}}{{{value}}}"


def macro_words(results: Results, cell: TableCell) -> list[str]:
    """Study, label and measure; radius and checkpoint only where they are not the study's own."""
    key = cell.key
    words = [key.study, cell.label, key.measure]
    if key.epsilon and key.epsilon != results.epsilon(key.study):
        words.append(f"eps {key.epsilon}")
    if (
        key.checkpoint
        and key.checkpoint != results.shown_checkpoint(key.study)
        and not key.measure.startswith("margin")
    ):
        words.append(key.checkpoint)
    return words


def _letters(text: str) -> str:
    """TeX names hold letters only: 10 becomes OneZero, + Plus, / Over."""
    spelled = re.sub(r"\d", lambda digit: f" {DIGITS[int(digit[0])]} ", text)
    spelled = spelled.replace("+", " plus ").replace("/", " over ").replace(".", " point ")
    return "".join(word[:1].upper() + word[1:] for word in re.findall(r"[A-Za-z]+", spelled))
