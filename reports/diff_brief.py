"""`python -m reports diff`: first what was run, then its cells and claims, in lines that fit a terminal."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Sequence

from reports.claims import judge as claims
from reports.claims.sources import Ours
from reports.diff import DEPARTING, MARKS, NOISE, CellDifference, differences, row, verdict, without_paper
from reports.names import setting
from reports.results import Results
from reports.tables.markdown import code, escape, grid
from reports.tables.table import MARKS as CELL_MARKS

WIDTH = 118
SHOWN_PARTS = 3
HEADERS = ("Method", "Measure", "Paper", "Ours", "n", "Δ", "p Welch", "Within noise")


def text(results: Results) -> str:
    parts = ["# Our numbers beside the paper's"]
    eyes = [results.beside(paper) for paper in results.papers]
    unnamed = [study for study in results.data.manifests if not any(ours.compares(study) for ours in eyes)]
    for ours in eyes:
        parts += _beside(ours)
    if unnamed:
        parts.append(_wrapped(without_paper(unnamed)))
    return "\n\n".join(parts) + "\n"


def _beside(ours: Results) -> list[str]:
    paper, source, found = ours.paper, Ours(ours), differences(ours)
    filled = [one for one in found if one.cell.sample is not None]
    compared = [one for one in filled if one.within_noise is not None]
    inside = sum(bool(one.within_noise) for one in compared)
    studies = [study for study in ours.data.manifests if ours.compares(study) or study in paper.studies]
    by_study: dict[str, list[CellDifference]] = defaultdict(list)
    for one in filled:
        by_study[one.cell.key.study].append(one)
    parts = [
        _wrapped(escape(paper.citation)),
        "## What was run",
        "\n".join(_wrapped(_run(ours, study, by_study.get(study, [])), "- ", "  ") for study in studies) or "Nothing.",
        _wrapped(
            f"{len(filled)} of the paper's {len(found)} distinct cells have a number of ours; "
            f"{inside} of {len(compared)} comparable ones are within noise."
        ),
    ]
    for study, cells in by_study.items():
        parts += [f"### {escape(ours.title(study))} ({code(study)})", grid([row(one)[1:] for one in cells], HEADERS)]
    if filled:
        seen = {sign for one in filled for sign in one.cell.marks}
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
    return [*parts, _wrapped(claims.PRINCIPLE), *_left_out(ours, judged, found)]


def _run(ours: Results, study: str, cells: Sequence[CellDifference]) -> str:
    states = Counter(one.status for one in ours.trainings(study))
    trainings = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    where = f"{len(cells)} cells of the paper" if study in ours.paper.studies else "no setting of the paper"
    return f"{code(study)} ({escape(setting(ours.data.manifests[study]))}): trainings {trainings}; {where}"


def _claims(judged: Sequence[claims.Claim], title: str, other: str | None = None) -> list[str]:
    known = [claim for claim in judged if claim.verdict != "not run"]
    if not known:
        return []
    counts = Counter(claim.verdict for claim in judged)
    shown = ", ".join(f"{MARKS[name]} {counts[name]}" for name in claims.ORDER)
    parts = [title, _wrapped(f"{len(judged)} claims: {shown}.")]
    if other is not None:
        parts.append("Not a setting of the paper: what follows neither supports nor refutes it.")
    for claim in known:
        lines = [_wrapped(f"{verdict(claim)}: {escape(claim.text)} ({claim.rule.name})", "- ", "  ")]
        told = [part for part in claim.parts if part.verdict != "not run"]
        for part in told[:SHOWN_PARTS]:
            mark = f"{part.verdict}, " if len(told) > 1 else ""
            where = f"{escape(part.where)}: " if part.where else ""
            lines.append(_wrapped(f"{mark}{where}{escape(part.evidence + part.remark)}", "  - ", "    "))
        if len(told) > SHOWN_PARTS:
            lines.append(f"  - … and {len(told) - SHOWN_PARTS} more parts (--all)")
        parts.append("\n".join(lines))
    if any(claim.departing for claim in known):
        parts.append(_wrapped(DEPARTING))
    return parts


def _left_out(ours: Results, judged: Sequence[claims.Claim], found: Sequence[CellDifference]) -> list[str]:
    holes = [one for one in found if one.cell.sample is None]
    open_claims = sum(claim.verdict == "not run" for claim in judged)
    if not holes and not open_claims:
        return []
    studies = [study for study in dict.fromkeys(one.printed.key.study for one in holes) if study not in ours.labels]
    named = f" of {', '.join(map(code, studies))}" if studies else ""
    return [_wrapped(f"Not run: {len(holes)} cells{named}; {open_claims} claims. --all lists them.")]


def _wrapped(text: str, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
