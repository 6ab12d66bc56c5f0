"""The paper's claims, one by one, judged by our numbers or by the paper's own.

Each kind of claim has its rule (`kinds`). Over a claim's parts: what all parts must show each part shows by
itself, which needs no correction. Where one part of several is enough, to support a claim about most or some settings
or to refute one about all, Holm corrects over the parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from reports.claims.kinds import KINDS
from reports.claims.question import Part, Question, listed
from reports.claims.rules import Verdict
from reports.claims.sources import Source
from reports.papers.paper import Contradiction
from reports.statistics import ALPHA, holm
from reports.tables.table import p_text

ClaimVerdict = Verdict | Literal["holds where run"]
ORDER: tuple[ClaimVerdict, ...] = ("holds", "holds where run", "does not hold", "undecided", "not run")
PRINCIPLE = (
    "Significant means by Welch's t-test over seeds, two-sided, α = 0.05; what is neither shown nor refuted is "
    "undecided. What all parts of a claim must show is tested part by part, without a correction; where one part of "
    "several is enough (to support a claim about most or some settings, or to refute one about all) Holm corrects over "
    "the parts. Nothing holds while a planned seed behind it collapsed (‡) or failed (§); a claim of which not all "
    "parts were run holds where run."
)


class Rule(NamedTuple):
    name: str
    text: str


@dataclass(frozen=True)
class Claim:
    id: str
    section: str
    text: str
    needs: str
    parts: tuple[Part, ...]
    rule: Rule
    contradictions: tuple[Contradiction, ...] = ()  # of the paper, that the evidence refers to

    @property
    def counts(self) -> Counter[str]:
        return Counter(part.verdict for part in self.parts)

    @property
    def verdict(self) -> ClaimVerdict:
        """A claim about many settings is not settled by the first few."""
        verdict = self._of_known
        return "holds where run" if verdict == "holds" and self.counts["not run"] else verdict

    @property
    def says(self) -> str:
        """The verdict, with how much of the claim it is about where that is not all."""
        if self.verdict != "holds where run":
            return self.verdict
        return f"holds where run: {len(self.parts) - self.counts['not run']} of {len(self.parts)}"

    @property
    def _of_known(self) -> Verdict:
        counts = self.counts
        known = len(self.parts) - counts["not run"]
        if not known:
            return "not run"
        if self.needs == "all":
            if counts["does not hold"]:
                return "does not hold"
            return "holds" if counts["holds"] == known else "undecided"
        wanted = known // 2 + 1 if self.needs == "most" else int(self.needs)
        if counts["holds"] >= wanted:
            return "holds"
        # With what is undecided or not run on its side, could the claim still come true of all its parts?
        reachable = counts["holds"] + counts["undecided"] + counts["not run"]
        needed = len(self.parts) // 2 + 1 if self.needs == "most" else wanted
        return "undecided" if reachable >= needed else "does not hold"

    @property
    def summary(self) -> str:
        if len(self.parts) == 1:
            return self.parts[0].evidence + self.parts[0].remark
        found = self.counts
        text = ", ".join(f"{verdict}: {found[verdict]}" for verdict in ORDER if found[verdict])
        return text + (f"; ¶ in {self.departing} of them" if self.departing else "")

    @property
    def departing(self) -> int:
        """Parts judged from numbers that were not made with the paper's settings."""
        return sum(bool(part.departs) for part in self.parts)


def judge(source: Source) -> list[Claim]:
    """Every claim of the paper, in the paper's settings."""
    return [_claim(source, entry, _settings(source, entry)) for entry in source.paper.claims]


def judge_study(source: Source, study: str) -> list[Claim]:
    """Those claims about a group of settings that another study can answer; settled ones and open ones alike."""
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
    parts: list[Part] = []
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
        tuple(one for one in source.paper.contradictions if one.number in entry.get("contradictions", [])),
    )


def corrected(parts: Sequence[Part], needs: str) -> tuple[Part, ...]:
    """Those that alone could decide the claim must be significant after Holm over all parts that were tested."""
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
