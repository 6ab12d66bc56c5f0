"""tables.tex, a complete document of booktabs tables, and numbers.tex, with one macro per number."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from reports.analysis.results import Results
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
APART = "\ue000"  # a private character, which no name contains
SPECIAL = {
    APART: "{}",
    # At the start of a row, LaTeX would read these as an argument of the preceding line break.
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
    """Escape a name from a study file or plug-in. Characters that pdflatex's fonts lack become question marks."""
    # TeX would join two hyphens into a dash, and options copied from the PDF would not work.
    apart = re.sub("-(?=-)", "-" + APART, text)
    return "".join(SPECIAL.get(sign, sign if _printable(sign) else "?") for sign in apart)


def _printable(sign: str) -> bool:
    return " " <= sign <= "~" or ("À" <= sign <= "ÿ" and sign not in "ÐÞðþ÷")


def cell_text(cell: TableCell) -> str:
    marks = escape(cell.marks)
    if cell.sample is None:
        return escape(cell.hole) + marks
    text = cell.text.replace("±", r"\pm ")
    text = rf"$\bm{{{text}}}$" if cell.best else f"${text}$"
    text = rf"\underline{{{text}}}" if cell.tied else text
    return text + marks + (f" ($n={cell.shown_n}$)" if cell.shown_n is not None else "")


def render(table: Table) -> str:
    """Return a table environment."""
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
    """Return tables.tex, a complete document."""
    bodies = [render(table) for table in tables]
    # LaTeX can hold only a few floating tables; a page break after every fourth keeps their order.
    body = "\n\\clearpage\n".join("\n".join(bodies[start : start + 4]) for start in range(0, len(bodies), 4))
    return PREAMBLE + (body or "No study is in the store yet.") + "\n\\end{document}\n"


def numbers(results: Results, tables: Iterable[Table]) -> str:
    """Return numbers.tex: a macro `\\StudyLabelMeasure` (mean±std) per number, and one each for its parts.

    The parts have the suffixes Mean, Std, N and P (the deciding p against the row's best).
    """
    lines = ["% One macro per number. \\input this file and a text never goes stale."]
    macros: dict[str, list[str]] = {}
    for table in tables:
        for cell in table.cells():
            if cell.sample is None or not cell.label:
                continue
            words = macro_words(results, cell)
            name = "".join(map(_letters, words))
            # Names may differ only in characters that a macro cannot contain. A cell in two tables gets one macro.
            while name in macros and macros[name] != words:
                name += "X"
            if name in macros:
                continue
            macros[name] = words
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
    """Return study, label and measure, and radius and checkpoint if they are not the study's own."""
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
    """Return a TeX name, which has letters only: 10 becomes OneZero, + Plus, / Over."""
    spelled = re.sub(r"\d", lambda digit: f" {DIGITS[int(digit[0])]} ", text)
    spelled = spelled.replace("+", " plus ").replace("/", " over ").replace(".", " point ")
    return "".join(word[:1].upper() + word[1:] for word in re.findall(r"[A-Za-z]+", spelled))
