"""A claim put to one setting: its samples, the settings they depart from, and the part that comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
    tested: str  # numbers and p-values
    departs: str = ""  # settings behind it that are not the paper's, in words
    p: float | None = None  # behind the verdict; None where no test was made
    told: tuple[str, ...] = ()  # what else is to be known of the numbers

    @property
    def evidence(self) -> str:
        return "; ".join([self.tested, *self.told])

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

    @property
    def measures(self) -> list[str]:
        return [str(name) for name in listed(self.entry["measure"])]

    def with_shared(self, labels: Sequence[str], to: str | None = None) -> Question:
        """With one of the claim's measures, the first that these labels share: two attacks give no comparison.

        What has a number by none of them has no say.
        """
        if len(self.measures) == 1:
            return self
        have = [{name for name in self.measures if self._look(label, name, to) is not None} for label in labels]
        known = [names for names in have if names]
        shared = [name for name in self.measures if all(name in names for names in known)] or self.measures
        return replace(self, entry={**self.entry, "measure": shared[0]})

    def _look(self, label: str, measure: str, to: str | None) -> Sample | None:
        """As `sample`, and nothing is noted."""
        apart = replace(self, _departures={}, _seeds={})
        return apart.sample(label, measure) if to is None else apart.combined(label, measure, to, -1)

    def sample(self, label: str, measure: str | None = None) -> Sample | None:
        """By this measure, else by the claim's; `sum` is robust plus clean accuracy."""
        name = measure or self.measures[0]
        if name == "sum":
            return self.combined(label, "autoattack", "clean", 1)
        key = self._key(label, name)
        self._note(key)
        return self.source.sample(key)

    def combined(self, label: str, first: str, second: str, sign: int) -> Sample | None:
        one, two = Key(self.setting, label, first), Key(self.setting, label, second)
        self._note(one)
        self._note(two)
        return self.source.combined(one, two, sign)

    def _key(self, label: str, measure: str) -> Key:
        return Key(self.setting, label, measure, self.epsilon, self.entry.get("checkpoint"))

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
        told = [f"{self._counted(label)} {one.text}" for label, one in seeds.items() if one.text]
        estimate = self.source.estimate(self.setting) if self.entry.get("measure") in ("margin", "margin_ratio") else ""
        verdict: Verdict = decision.verdict
        if verdict == "holds" and any(one.lost for one in seeds.values()):
            verdict = "undecided"
        return Part(
            self.where,
            verdict,
            decision.evidence,
            joined(found),
            decision.p,
            (*decision.remarks, *filter(None, [estimate]), *told),
        )

    def name(self, label: str) -> str:
        return self.source.display(self.setting, label)

    def _counted(self, label: str) -> str:
        """Whose seeds: a ratio has those of two."""
        ratio = self.source.paper.margin_ratio if self.entry.get("measure") == "margin_ratio" else None
        return self.name(label) + (f" / {self.name(ratio.under.label)}" if ratio is not None else "")

    def text(self, sample: Sample) -> str:
        logits = any(word in str(self.entry.get("measure")) for word in ("margin", "gradient"))
        return (MARGINS if logits else Rounding()).text(sample)

    def missing(self, labels: Sequence[str], measure: str | None = None, before: str = "") -> list[Part]:
        """Without the numbers of these labels. Where only their trainings are lost the part was run, and is open for
        good."""
        lost = {label: seeds for label in labels if (seeds := self._all_lost(label, measure)) is not None}
        lacking = [self.name(label) for label in labels if label not in lost]
        told = [f"{self._counted(label)} {seeds.text}" for label, seeds in lost.items()]
        if lacking:
            return [Part(self.where, "not run", f"{before}no numbers for {', '.join(lacking)}", told=tuple(told))]
        return [Part(self.where, "undecided", f"{before}{'; '.join(told)}")]

    def lacking_name(self, label: str, measure: str | None = None) -> str:
        lost = self._all_lost(label, measure)
        return self.name(label) + (f" ({lost.text})" if lost is not None else "")

    def _all_lost(self, label: str, measure: str | None) -> Seeds | None:
        """None too where nobody has this number: then it is the measure that was not taken."""
        name = measure or self.measures[0]
        seeds = self.source.seeds(self._key(label, "autoattack" if name == "sum" else name))
        if seeds is None or not seeds.all_lost:
            return None
        others = [str(one) for role in ("first", "second", "series") for one in listed(self.entry.get(role, []))]
        return seeds if any(self._look(one, name, None) is not None for one in others) else None
