"""The full text of `python -m reports diff --all`: every cell beside the paper's, and every claim with a verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from reports.analysis.claims import judge as claims
from reports.analysis.claims.sources import InPrint, Ours
from reports.analysis.names import attack_name
from reports.analysis.results import Results
from reports.analysis.statistics import ALPHA, Comparison, Sample, compare
from reports.comparison.departures import Departures
from reports.papers.paper import Paper, Printed
from reports.tables.caption import added_notes
from reports.tables.markdown import code, escape, grid, render
from reports.tables.table import MARKS as CELL_MARKS
from reports.tables.table import Key, TableCell, p_text, signed, with_best

MARKS = {
    "holds": "✅ holds",
    "holds where run": "☑ holds where run",
    "does not hold": "❌ does not hold",
    "undecided": "❔ undecided",
    "not run": "– not run",
}
NOT_PRINTED = {**MARKS, "holds where run": "☑ holds where printed", "not run": "– not printed"}
DEPARTING = "¶: judged from numbers made with settings other than those of the study shipped under that name."
NOISE = (
    "Within noise: a two-sided Welch t-test between the paper's seeds (from its printed mean, std and n) and ours does "
    "not reject at 5 % that both have the same mean. Where one side has a single seed, the other side's spread is used "
    "for both. This says that seeds alone could explain the difference, not that the numbers are equal. The printed "
    "values are rounded, so a p near 0.05 could fall on either side. Where the paper prints a cell twice, its first "
    "table counts."
)


@dataclass(frozen=True)
class CellDifference:
    """A cell of the paper, our cell for it, and their comparison."""

    printed: Printed
    cell: TableCell
    comparison: Comparison | None

    @property
    def within_noise(self) -> bool | None:
        """Return whether seeds alone could explain the difference; None if it cannot be tested."""
        if self.comparison is None or self.comparison.welch is None:
            return None
        return self.comparison.welch >= ALPHA


def differences(results: Results) -> list[CellDifference]:
    """Return one difference for each distinct cell of the paper, in the order of its tables."""
    by_identity: dict[tuple[str, str, str, str | None, object], CellDifference] = {}
    departures = Departures(results)
    for table in results.paper.tables:
        for printed in table.cells():
            key = printed.key
            identity = (key.study, key.label, key.measure, key.epsilon, key.hyperparameters if key.exact else None)
            if identity in by_identity or key.measure == "worst":
                continue
            cell = results.cell(key, table.rounding)
            cell = replace(cell, departs=departures.of(cell))
            comparison = None if cell.sample is None else against_paper(cell.sample, printed.sample)
            by_identity[identity] = CellDifference(printed, cell, comparison)
    return list(by_identity.values())


def against_paper(ours: Sample, paper: Sample) -> Comparison:
    """Compare our sample with the paper's. Unlike in `compare`, a single seed borrows the other side's spread."""
    if ours.spread_known and not paper.spread_known:
        return _with_borrowed(ours, paper, ours)
    if paper.spread_known and not ours.spread_known:
        return _with_borrowed(ours, paper, paper)
    return compare(ours, paper)


def _with_borrowed(ours: Sample, paper: Sample, lender: Sample) -> Comparison:
    """Compare the means by the spread of `lender`, which is one of the two."""
    from scipy.special import stdtr

    difference = ours.mean - paper.mean
    error = lender.std * math.sqrt(1 / ours.n + 1 / paper.n)
    if error == 0:
        return compare(ours, paper)
    p = float(2 * stdtr(lender.n - 1, -abs(difference / error)))
    return Comparison(difference, p, p, None, None, None)


def text(results: Results) -> str:
    """Return cells and claims as Markdown, including those not run."""
    parts = []
    for paper in results.papers:
        ours = results.beside(paper)
        judged = claims.judge(Ours(ours))
        parts += [f"# Our numbers beside the paper's\n\n{escape(paper.citation)}", *_claims(judged)]
        parts += _cells(ours, differences(ours))
        for study in results.data.manifests:
            if study not in paper.studies and ours.compares(study):
                parts += _study_claims(ours, study)
        parts += _contradictions(paper)
    return "\n\n".join(parts or [without_paper(results.data.manifests)]) + "\n"


def without_paper(studies: Iterable[str]) -> str:
    """Return the sentence about studies that name no paper."""
    return (
        f"{', '.join(map(code, studies))}: compared with no paper. Name one with `papers: [NAME]` in the "
        "study's file, or with --against NAME."
    )


def text_in_print(paper: Paper) -> str:
    """Return the paper judged by its own printed numbers, as Markdown."""
    judged = _claims(claims.judge(InPrint(paper)), NOT_PRINTED)
    parts = ["# The paper judged by its own numbers", *_self_check(paper), *judged, *_contradictions(paper)]
    return "\n\n".join(parts) + "\n"


def _claims(judged: list[claims.Claim], marks: dict[str, str] = MARKS) -> list[str]:
    counts = Counter(claim.verdict for claim in judged)
    totals = ", ".join(f"{marks[verdict]} {counts[verdict]}" for verdict in claims.ORDER)
    rows = [
        [escape(claim.text), f"§{claim.section}", verdict(claim, marks), claim.rule.name, escape(claim.summary)]
        for claim in judged
    ]
    parts = [
        f"## Claims\n\n{len(judged)} claims: {totals}. {claims.PRINCIPLE} Student's p is given beside Welch's."
        + (f" {DEPARTING}" if any(claim.departing for claim in judged) else ""),
        grid(rows, ["Claim", "Section", "Verdict", "Rule", "Evidence"], numbers=False),
        _rules(judged),
    ]
    detailed = [claim for claim in judged if len(claim.parts) > 1 and claim.verdict != "not run"]
    for claim in detailed:
        lines = [
            f"- {marks[part.verdict]}, {escape(part.where)}: {escape(part.evidence + part.remark)}"
            for part in claim.parts
            if part.verdict != "not run"
        ]
        lacking = Counter(part.where for part in claim.parts if part.verdict == "not run")
        if lacking:
            places = ", ".join(f"{escape(where)} {count}" for where, count in lacking.items())
            lines.append(f"- {marks['not run']}: {lacking.total()} parts ({places})")
        heading = f"**{escape(claim.text)}** (§{claim.section}): {verdict(claim, marks)}"
        parts.append(f"{heading}\n\n" + "\n".join(lines))
    return parts


def verdict(claim: claims.Claim, marks: dict[str, str] = MARKS) -> str:
    """Return a claim's verdict with its mark, the share that was run, and ¶ where settings depart."""
    share = claim.says.removeprefix(claim.verdict)
    return marks[claim.verdict] + share + (" ¶" if claim.departing else "")


def _rules(judged: list[claims.Claim]) -> str:
    used = dict.fromkeys(claim.rule for claim in judged)
    return "The rules used:\n\n" + "\n".join(f"- {rule.name}: {escape(rule.text)}" for rule in used)


def _contradictions(paper: Paper) -> list[str]:
    lines = [
        f"- Contradiction {entry.number}, {escape(entry.title)}: {escape(entry.paper)} "
        f"Our decision: {escape(entry.decision)}"
        for entry in paper.contradictions
    ]
    return ["## Where the paper contradicts itself or the code that it used\n\n" + "\n".join(lines)] if lines else []


def _study_claims(results: Results, study: str) -> list[str]:
    judged = claims.judge_study(Ours(results), study)
    if not judged:
        return []
    rows = [[escape(claim.text), verdict(claim), claim.rule.name, escape(_evidence(claim))] for claim in judged]
    return [
        f"## The same claims on {escape(results.title(study))} ({code(study)})",
        "This is not a setting of the paper, so these results neither support nor refute it.",
        *added_notes(results.cell(Key(study, label, "clean")) for label in results.labels[study]),
        grid(rows, ["Claim", "Verdict", "Rule", "Evidence"], numbers=False),
        _rules(judged),
    ]


def _evidence(claim: claims.Claim) -> str:
    return "; ".join(part.evidence + part.remark for part in claim.parts if part.verdict != "not run")


def _cells(results: Results, entries: list[CellDifference]) -> list[str]:
    filled = [entry for entry in entries if entry.cell.sample is not None]
    judged = [entry for entry in filled if entry.within_noise is not None]
    inside = sum(bool(entry.within_noise) for entry in judged)
    parts = [
        f"## Cells\n\n{len(filled)} of the paper's {len(entries)} distinct cells have a number of ours; "
        f"{inside} of {len(judged)} comparable ones are within noise.",
        f"<sub>{NOISE}</sub>",
    ]
    parts += added_notes(entry.cell for entry in filled)
    seen = {sign for entry in filled for sign in entry.cell.marks}
    parts += [f"{sign} {words}" for sign, words in CELL_MARKS.items() if sign in seen]
    parts += map(escape, Departures(results).sentences(entry.cell for entry in filled))
    for table in results.paper.tables:
        rows = [row(entry) for entry in filled if entry.printed.table == table.number]
        lacking = sum(entry.cell.sample is None for entry in entries if entry.printed.table == table.number)
        title = f"### Table {table.number}: {escape(table.spec['title'])}"
        missing = f"{lacking} cells not run." if lacking else ""
        if rows:
            headers = ["Setting", "Method", "Measure", "Paper", "Ours", "n", "Δ", "p Welch", "Within noise"]
            parts.append("\n\n".join(filter(None, [title, grid(rows, headers), missing])))
        elif missing:
            parts.append(f"{title}\n\n{missing}")
    return parts


def row(entry: CellDifference) -> list[str]:
    """Return the table row of a cell that has a number of ours."""
    key, cell = entry.printed.key, entry.cell
    assert cell.sample is not None and entry.comparison is not None
    measure = attack_name(key.measure) + (f", {key.epsilon}" if key.epsilon else "")
    p = entry.comparison.welch
    decimals = 2 if key.measure in ("margin", "margin_ratio") else 1
    return [
        code(key.study),
        code(cell.label),
        escape(measure),
        entry.printed.text,
        cell.text + cell.marks,
        str(cell.sample.n),
        signed(entry.comparison.difference, decimals),
        p_text(p),
        {True: "yes", False: "**no**", None: "?"}[entry.within_noise],
    ]


def _self_check(paper: Paper) -> list[str]:
    """Render the paper's printed numbers by our tables, and report cells or emphasis that come out differently."""
    wrong = []
    total = 0
    rendered = []
    for source in paper.tables:
        table = with_best(source.as_printed())
        printed = source.cells()
        has_bold = any(cell.bold for cell in printed)
        for ours, theirs in zip(table.cells(), printed, strict=True):
            total += 1
            if ours.text != theirs.text or (has_bold and ours.best != theirs.bold):
                wrong.append(f"table {source.number}, {theirs.key.study} {theirs.key.label}: {theirs.text}")
        note = "As printed; bold and underline by our rules (T3, two-sided, from printed mean, std and n)."
        rendered.append(render(replace(table, notes=(note,))))
    verdict = "equal the paper's" if not wrong else f"differ in {len(wrong)}: {'; '.join(wrong)}"
    return [f"Rendered by our tables, its {total} cells {verdict}.", *rendered]
