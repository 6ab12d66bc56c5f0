"""The short text of `python -m reports diff`: what was run, its cells and its claims, in lines that fit a terminal."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Sequence

from reports.analysis.claims import judge as claims
from reports.analysis.claims.sources import Ours
from reports.analysis.names import setting
from reports.analysis.results import Results
from reports.comparison.diff import DEPARTING, MARKS, NOISE, CellDifference, differences, row, verdict, without_paper
from reports.tables.markdown import code, escape, grid
from reports.tables.table import MARKS as CELL_MARKS

WIDTH = 118
SHOWN_PARTS = 3
HEADERS = ("Method", "Measure", "Paper", "Ours", "n", "Δ", "p Welch", "Within noise")


def text(results: Results) -> str:
    """Return the comparison with each paper as Markdown, without what was not run."""
    parts = ["# Our numbers beside the paper's"]
    views = [results.beside(paper) for paper in results.papers]
    without = [study for study in results.data.manifests if not any(view.compares(study) for view in views)]
    for view in views:
        parts += _beside(view)
    if without:
        parts.append(_wrapped(without_paper(without)))
    return "\n\n".join(parts) + "\n"


def _beside(ours: Results) -> list[str]:
    paper, source, entries = ours.paper, Ours(ours), differences(ours)
    filled = [entry for entry in entries if entry.cell.sample is not None]
    compared = [entry for entry in filled if entry.within_noise is not None]
    inside = sum(bool(entry.within_noise) for entry in compared)
    studies = [study for study in ours.data.manifests if ours.compares(study) or study in paper.studies]
    by_study: dict[str, list[CellDifference]] = defaultdict(list)
    for entry in filled:
        by_study[entry.cell.key.study].append(entry)
    parts = [
        _wrapped(escape(paper.citation)),
        "## What was run",
        "\n".join(_wrapped(_run(ours, study, by_study.get(study, [])), "- ", "  ") for study in studies) or "Nothing.",
        _wrapped(
            f"{len(filled)} of the paper's {len(entries)} distinct cells have a number of ours; "
            f"{inside} of {len(compared)} comparable ones are within noise."
        ),
    ]
    for study, ran in by_study.items():
        parts += [f"### {escape(ours.title(study))} ({code(study)})", grid([row(entry)[1:] for entry in ran], HEADERS)]
    if filled:
        seen = {sign for entry in filled for sign in entry.cell.marks}
        parts += [_wrapped(f"{sign} {words}") for sign, words in CELL_MARKS.items() if sign in seen]
        parts.append(_wrapped(NOISE))
    judged = claims.judge(source)
    calculated = [claim for claim in judged if claim.rule.name == "calculation"]
    parts += _claims([claim for claim in judged if claim not in calculated], "## Claims")
    for study in studies:
        if study not in paper.studies:
            parts += _claims(
                claims.judge_study(source, study), f"## The same claims on {escape(ours.title(study))}", study
            )
    parts += _claims(calculated, "## Claims that need no training")
    return [*parts, _wrapped(claims.PRINCIPLE), *_left_out(ours, judged, entries)]


def _run(ours: Results, study: str, cells: Sequence[CellDifference]) -> str:
    """Describe a study: its setting, the states of its trainings, and how many cells of the paper it fills."""
    states = Counter(training.status for training in ours.trainings(study))
    trainings = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    where = f"{len(cells)} cells of the paper" if study in ours.paper.studies else "no setting of the paper"
    return f"{code(study)} ({escape(setting(ours.data.manifests[study]))}): trainings {trainings}; {where}"


def _claims(judged: Sequence[claims.Claim], title: str, other: str | None = None) -> list[str]:
    """Return a section of claims that were run; `other` is the study if the paper does not have it."""
    ran = [claim for claim in judged if claim.verdict != "not run"]
    if not ran:
        return []
    counts = Counter(claim.verdict for claim in judged)
    totals = ", ".join(f"{MARKS[name]} {counts[name]}" for name in claims.ORDER)
    parts = [title, _wrapped(f"{len(judged)} claims: {totals}.")]
    if other is not None:
        parts.append("This is not a setting of the paper, so these results neither support nor refute it.")
    for claim in ran:
        lines = [_wrapped(f"{verdict(claim)}: {escape(claim.text)} ({claim.rule.name})", "- ", "  ")]
        parts_run = [part for part in claim.parts if part.verdict != "not run"]
        for part in parts_run[:SHOWN_PARTS]:
            mark = f"{part.verdict}, " if len(parts_run) > 1 else ""
            where = f"{escape(part.where)}: " if part.where else ""
            lines.append(_wrapped(f"{mark}{where}{escape(part.evidence + part.remark)}", "  - ", "    "))
        if len(parts_run) > SHOWN_PARTS:
            lines.append(f"  - … and {len(parts_run) - SHOWN_PARTS} more parts (--all)")
        parts.append("\n".join(lines))
    if any(claim.departing for claim in ran):
        parts.append(_wrapped(DEPARTING))
    return parts


def _left_out(ours: Results, judged: Sequence[claims.Claim], entries: Sequence[CellDifference]) -> list[str]:
    """Count the cells and claims that were not run."""
    holes = [entry for entry in entries if entry.cell.sample is None]
    open_claims = sum(claim.verdict == "not run" for claim in judged)
    if not holes and not open_claims:
        return []
    of_holes = dict.fromkeys(entry.printed.key.study for entry in holes)
    studies = [study for study in of_holes if study not in ours.labels]
    named = f" of {', '.join(map(code, studies))}" if studies else ""
    return [_wrapped(f"Not run: {len(holes)} cells{named}; {open_claims} claims. --all lists them.")]


def _wrapped(text: str, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
