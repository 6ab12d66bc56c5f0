"""Judge the paper's claims, one by one, by our numbers or by those that the paper prints.

Each kind of claim has its rule (`kinds`). If all parts of a claim must hold, each is tested by itself, which needs no
correction. If one part of several is enough, to support a claim about most or some settings or to refute a claim
about all, Holm corrects over the parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from reports.analysis.claims.kinds import KINDS
from reports.analysis.claims.question import ClaimPart, Question, listed
from reports.analysis.claims.rules import Verdict
from reports.analysis.claims.sources import Source
from reports.analysis.statistics import ALPHA, holm
from reports.papers.paper import Contradiction
from reports.tables.table import p_text

ClaimVerdict = Verdict | Literal["holds where run"]
ORDER: tuple[ClaimVerdict, ...] = ("holds", "holds where run", "does not hold", "undecided", "not run")
PRINCIPLE = (
    "Significance is by Welch's two-sided t-test over seeds, α = 0.05. A claim that is neither supported nor refuted "
    "is undecided. If all parts of a claim must hold, each part is tested without a correction. If one part of several "
    "is enough (to support a claim about most or some settings, or to refute one about all), Holm corrects over the "
    "parts. No claim holds while a planned seed behind it collapsed (‡) or failed (§). A claim with parts that were "
    "not run can only hold where run."
)


class Rule(NamedTuple):
    """The rule of a claim: the name of its kind, and the rule in words."""

    name: str
    text: str


@dataclass(frozen=True)
class Claim:
    """A claim of the paper with its parts and verdict."""

    id: str
    section: str
    text: str
    needs: str
    parts: tuple[ClaimPart, ...]
    rule: Rule
    contradictions: tuple[Contradiction, ...] = ()  # contradictions in the paper that the evidence refers to

    @property
    def counts(self) -> Counter[str]:
        return Counter(part.verdict for part in self.parts)

    @property
    def verdict(self) -> ClaimVerdict:
        """Return the verdict on the claim. With parts that were not run it can only hold where run."""
        verdict = self._verdict_where_run
        return "holds where run" if verdict == "holds" and self.counts["not run"] else verdict

    @property
    def says(self) -> str:
        """Return the verdict, with the number of parts run if it holds only there."""
        if self.verdict != "holds where run":
            return self.verdict
        return f"holds where run: {len(self.parts) - self.counts['not run']} of {len(self.parts)}"

    @property
    def _verdict_where_run(self) -> Verdict:
        counts = self.counts
        run = len(self.parts) - counts["not run"]
        if not run:
            return "not run"
        if self.needs == "all":
            if counts["does not hold"]:
                return "does not hold"
            return "holds" if counts["holds"] == run else "undecided"
        wanted = run // 2 + 1 if self.needs == "most" else int(self.needs)
        if counts["holds"] >= wanted:
            return "holds"
        # Could the claim still hold if all parts that are undecided or not run turned out in its favour?
        reachable = counts["holds"] + counts["undecided"] + counts["not run"]
        needed = len(self.parts) // 2 + 1 if self.needs == "most" else wanted
        return "undecided" if reachable >= needed else "does not hold"

    @property
    def summary(self) -> str:
        """Return the evidence of a single part, or the number of parts with each verdict."""
        if len(self.parts) == 1:
            return self.parts[0].evidence + self.parts[0].remark
        counts = self.counts
        text = ", ".join(f"{verdict}: {counts[verdict]}" for verdict in ORDER if counts[verdict])
        return text + (f"; ¶ in {self.departing} of them" if self.departing else "")

    @property
    def departing(self) -> int:
        """Return how many parts are judged from numbers that were not made with the paper's settings."""
        return sum(bool(part.departs) for part in self.parts)


def judge(source: Source) -> list[Claim]:
    """Return every claim of the paper, judged in the paper's settings."""
    return [_claim(source, entry, _settings(source, entry)) for entry in source.paper.claims]


def judge_study(source: Source, study: str) -> list[Claim]:
    """Return the claims about groups of settings that another study can answer, decided or not."""
    claims = [
        _claim(source, entry, [study])
        for entry in source.paper.claims
        if isinstance(entry.get("settings"), str) and "epsilon" not in entry and entry["needs"] in ("all", "most", 1)
    ]
    return [claim for claim in claims if claim.verdict != "not run"]


def _settings(source: Source, entry: dict[str, Any]) -> Sequence[str]:
    wanted = entry.get("settings", [""])
    return source.paper.settings[wanted] if isinstance(wanted, str) else wanted


def _claim(source: Source, entry: dict[str, Any], settings: Iterable[str]) -> Claim:
    kind = KINDS[entry["kind"]]
    parts: list[ClaimPart] = []
    for setting in settings:
        for radius in listed(entry.get("epsilon", [None])):
            parts += kind.judge(Question(source, entry, setting, radius))
    return Claim(
        entry["id"],
        str(entry["section"]),
        entry["claim"],
        str(entry["needs"]),
        corrected(parts, str(entry["needs"])),
        Rule(entry["kind"].replace("_", " "), kind.rule.format(**entry)),
        tuple(point for point in source.paper.contradictions if point.number in entry.get("contradictions", [])),
    )


def corrected(parts: Sequence[ClaimPart], needs: str) -> tuple[ClaimPart, ...]:
    """Return the parts with decisive p-values corrected by Holm over all tested parts.

    A part is decisive if it alone could decide the claim; it stays decided only if it is significant after Holm.
    """
    if sum(part.p is not None for part in parts) < 2:
        return tuple(parts)
    corrected = []
    for part, p in zip(parts, holm([part.p for part in parts]), strict=True):
        decisive = ("does not hold",) if needs == "all" else ("holds", "does not hold")
        if p is not None and part.verdict in decisive:
            verdict = part.verdict if p < ALPHA else "undecided"
            part = replace(part, verdict=verdict, tested=f"{part.tested}, {p_text(p)} after Holm over the parts")
        corrected.append(part)
    return tuple(corrected)
