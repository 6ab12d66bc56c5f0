"""The paper's claims, one by one, judged by our numbers or by the paper's own.

A claim that something holds everywhere needs no correction for many tests: every part must pass by itself. Parts are
judged by Welch's t-test, two-sided, at 5 %: significant in the claimed direction holds, in the other does not hold,
anything else is undecided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from reports import calculations
from reports.claim_kinds import KINDS, Part, Question, Verdict, listed
from reports.published import FOLDER
from reports.sources import Source

ORDER: tuple[Verdict, ...] = ("holds", "does not hold", "undecided", "not run")


@dataclass(frozen=True)
class Claim:
    id: str
    section: str
    text: str
    needs: str
    parts: tuple[Part, ...]

    @property
    def counts(self) -> Counter[str]:
        return Counter(part.verdict for part in self.parts)

    @property
    def verdict(self) -> Verdict:
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
        # With what is undecided or not run on its side, could the claim still come true?
        reachable = counts["holds"] + counts["undecided"] + (counts["not run"] if self.needs != "most" else 0)
        return "undecided" if reachable >= wanted else "does not hold"

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


@cache
def _catalogue() -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / "claims.yaml").read_text(encoding="utf-8")))


def judge(source: Source) -> list[Claim]:
    """Every claim of the paper, in the paper's settings."""
    groups = _catalogue()["settings"]
    return [_claim(source, entry, _settings(entry, groups)) for entry in _catalogue()["claims"]]


def judge_study(source: Source, study: str) -> list[Claim]:
    """Those claims about the main settings that another study can answer; settled ones and open ones alike."""
    claims = [
        _claim(source, entry, [study])
        for entry in _catalogue()["claims"]
        if entry.get("settings") in ("main", "rn18") and "epsilon" not in entry and entry["needs"] in ("all", "most", 1)
    ]
    return [claim for claim in claims if claim.verdict != "not run"]


def _settings(entry: dict[str, Any], groups: dict[str, list[str]]) -> list[str]:
    wanted = entry.get("settings", [""])
    return groups[wanted] if isinstance(wanted, str) else list(wanted)


def _claim(source: Source, entry: dict[str, Any], settings: Iterable[str]) -> Claim:
    parts: list[Part] = []
    if entry["kind"] == "calculation":
        holds, evidence = getattr(calculations, entry["calculation"])()
        parts.append(Part("", "holds" if holds else "does not hold", evidence))
    elif entry["kind"] == "not_covered":
        parts.append(Part("", "not run", "no shipped study repeats this"))
    else:
        for setting in settings:
            for radius in listed(entry.get("epsilon", [None])):
                parts += KINDS[entry["kind"]](Question(source, entry, setting, radius))
    return Claim(entry["id"], str(entry["section"]), entry["claim"], str(entry["needs"]), tuple(parts))
