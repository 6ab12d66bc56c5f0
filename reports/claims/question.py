"""A claim put to one setting: its samples, the settings they depart from, and the part that comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reports.claims.rules import Decision, Verdict
from reports.claims.sources import Source
from reports.departures import joined
from reports.statistics import Sample
from reports.tables.table import Key, Rounding

MARGINS = Rounding(0, 3)


@dataclass(frozen=True)
class Part:
    where: str
    verdict: Verdict
    evidence: str
    departs: str = ""  # settings behind it that are not the paper's, in words
    p: float | None = None  # behind the verdict; None where no test was made

    @property
    def remark(self) -> str:
        return f"; ¶ {self.departs}" if self.departs else ""


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True)
class Question:
    source: Source
    entry: dict[str, Any]
    setting: str
    epsilon: str | None
    _departures: dict[str, dict[str, None]] = field(default_factory=dict)  # of the labels asked for so far

    @property
    def where(self) -> str:
        return self.setting + (f", ε = {self.epsilon}" if self.epsilon else "")

    def labels(self, role: str) -> list[str]:
        return [str(label) for label in listed(self.entry[role])]

    def sample(self, label: str, measure: str | None = None) -> Sample | None:
        """The first of the claim's measures that is known; `sum` is robust plus clean accuracy."""
        wanted = [measure] if measure else listed(self.entry["measure"])
        for name in wanted:
            if name == "sum":
                found = self.combined(label, "autoattack", "clean", 1)
            else:
                key = Key(self.setting, label, name, self.epsilon, self.entry.get("checkpoint"))
                found = self.source.sample(key)
                self._note(key)
            if found is not None:
                return found
        return None

    def combined(self, label: str, first: str, second: str, sign: int) -> Sample | None:
        one, two = Key(self.setting, label, first), Key(self.setting, label, second)
        self._note(one)
        self._note(two)
        return self.source.combined(one, two, sign)

    def _note(self, key: Key) -> None:
        known = self._departures.setdefault(key.label, {})
        known |= dict.fromkeys(self.source.departures(key))

    def part(self, labels: Sequence[str], decision: Decision) -> Part:
        """Judged from the numbers of these labels."""
        found = {self.name(label): self._departures.get(label, {}) for label in labels}
        return Part(self.where, decision.verdict, decision.evidence, joined(found), decision.p)

    def name(self, label: str) -> str:
        return self.source.display(self.setting, label)

    def text(self, sample: Sample) -> str:
        percent = self.entry.get("measure") not in ("margin", "margin_ratio") and "gradient" not in str(
            self.entry.get("measure")
        )
        return (Rounding() if percent else MARGINS).text(sample)

    def missing(self, labels: Sequence[str]) -> list[Part]:
        lacking = [self.name(label) for label in labels]
        return [Part(self.where, "not run", f"no numbers for {', '.join(lacking)}")]
