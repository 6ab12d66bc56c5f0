"""A claim put to one setting: its samples, the settings they depart from, and the part that comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reports.claims.rules import Decision, Verdict
from reports.claims.sources import Seeds, Source
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
    _seeds: dict[str, Seeds] = field(default_factory=dict)  # the fewest of each

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
        seeds = self.source.seeds(key)
        if seeds is not None and seeds.used:
            self._seeds[key.label] = min(seeds, self._seeds.get(key.label, seeds))

    def part(self, labels: Sequence[str], decision: Decision) -> Part:
        """Judged from the numbers of these labels. Nothing holds while a planned seed of theirs collapsed or failed:
        what is left of a method that does not always train is not the method."""
        found = {self.name(label): self._departures.get(label, {}) for label in labels}
        seeds = {label: self._seeds[label] for label in dict.fromkeys(labels) if label in self._seeds}
        told = [f"{self.name(label)} {one.text}" for label, one in seeds.items() if one.text]
        estimate = self.source.estimate(self.setting) if self.entry.get("measure") in ("margin", "margin_ratio") else ""
        verdict: Verdict = decision.verdict
        if verdict == "holds" and any(one.lost for one in seeds.values()):
            verdict = "undecided"
        return Part(
            self.where,
            verdict,
            "; ".join(filter(None, [decision.evidence, estimate, *told])),
            joined(found),
            decision.p,
        )

    def name(self, label: str) -> str:
        return self.source.display(self.setting, label)

    def text(self, sample: Sample) -> str:
        logits = any(word in str(self.entry.get("measure")) for word in ("margin", "gradient"))
        return (MARGINS if logits else Rounding()).text(sample)

    def missing(self, labels: Sequence[str]) -> list[Part]:
        lacking = [self.name(label) for label in labels]
        return [Part(self.where, "not run", f"no numbers for {', '.join(lacking)}")]
