"""A claim applied to one setting: its samples, their departures from the paper's settings, and the resulting part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reports.analysis.claims.rules import Judgement, Verdict
from reports.analysis.claims.sources import Seeds, Source
from reports.analysis.statistics import Sample
from reports.comparison.departures import joined
from reports.tables.table import Key, Rounding

MARGINS = Rounding(0, 3)


@dataclass(frozen=True)
class ClaimPart:
    """The result of a claim for some labels in one setting."""

    where: str
    verdict: Verdict
    tested: str  # numbers and p-values
    departs: str = ""  # departures from the paper's settings, in words
    p: float | None = None  # behind the verdict; None where no test was made
    notes: tuple[str, ...] = ()  # further facts about the numbers

    @property
    def evidence(self) -> str:
        return "; ".join([self.tested, *self.notes])

    @property
    def remark(self) -> str:
        return f"; ¶ {self.departs}" if self.departs else ""


def listed(value: Any) -> list[Any]:
    """Return a list as it is, and any other value as a list of one."""
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True)
class Question:
    """A claim applied to one setting and radius."""

    source: Source
    entry: dict[str, Any]
    setting: str
    epsilon: str | None
    _departures: dict[str, dict[str, None]] = field(default_factory=dict)  # by label, of those asked for so far
    _seeds: dict[str, Seeds] = field(default_factory=dict)  # by label, the fewest of its numbers

    @property
    def where(self) -> str:
        return self.setting + (f", ε = {self.epsilon}" if self.epsilon else "")

    def labels(self, role: str) -> list[str]:
        return [str(label) for label in listed(self.entry[role])]

    @property
    def measures(self) -> list[str]:
        return [str(name) for name in listed(self.entry["measure"])]

    def with_shared(self, labels: Sequence[str], to: str | None = None) -> Question:
        """Return the question with one measure: the claim's first that all these labels have.

        Different attacks are not comparable. Labels without any of the measures are ignored.
        """
        if len(self.measures) == 1:
            return self
        measured = [{name for name in self.measures if self._peek(label, name, to) is not None} for label in labels]
        shared = [name for name in self.measures if all(name in names for names in measured if names)] or self.measures
        return replace(self, entry={**self.entry, "measure": shared[0]})

    def _peek(self, label: str, measure: str, to: str | None) -> Sample | None:
        """Return the sample without noting its departures and seeds."""
        apart = replace(self, _departures={}, _seeds={})
        return apart.sample(label, measure) if to is None else apart.combined(label, measure, to, -1)

    def sample(self, label: str, measure: str | None = None) -> Sample | None:
        """Return the label's sample by this measure, or by the claim's own; `sum` is robust plus clean accuracy."""
        name = measure or self.measures[0]
        if name == "sum":
            return self.combined(label, "autoattack", "clean", 1)
        key = self._key(label, name)
        self._note(key)
        return self.source.sample(key)

    def combined(self, label: str, first: str, second: str, sign: int) -> Sample | None:
        """Return the sum (sign 1) or difference (-1) of two measures of a label."""
        keys = Key(self.setting, label, first), Key(self.setting, label, second)
        for key in keys:
            self._note(key)
        return self.source.combined(*keys, sign)

    def _key(self, label: str, measure: str) -> Key:
        return Key(self.setting, label, measure, self.epsilon, self.entry.get("checkpoint"))

    def _note(self, key: Key) -> None:
        """Remember the departures and seeds behind a number."""
        departures = self._departures.setdefault(key.label, {})
        departures |= dict.fromkeys(self.source.departures(key))
        seeds = self.source.seeds(key)
        if seeds is not None and seeds.used:
            self._seeds[key.label] = min(seeds, self._seeds.get(key.label, seeds))

    def part(self, labels: Sequence[str], judgement: Judgement) -> ClaimPart:
        """Return the part that was judged from the numbers of these labels.

        Nothing holds if a planned seed behind it collapsed or failed: the remaining seeds do not represent the method.
        """
        departures = {self.name(label): self._departures.get(label, {}) for label in labels}
        seeds = {label: self._seeds[label] for label in dict.fromkeys(labels) if label in self._seeds}
        counts = [f"{self._counted(label)} {used.text}" for label, used in seeds.items() if used.text]
        estimate = self.source.estimate(self.setting) if self.entry.get("measure") in ("margin", "margin_ratio") else ""
        verdict: Verdict = judgement.verdict
        if verdict == "holds" and any(used.lost for used in seeds.values()):
            verdict = "undecided"
        return ClaimPart(
            self.where,
            verdict,
            judgement.evidence,
            joined(departures),
            judgement.p,
            (*judgement.remarks, *filter(None, [estimate]), *counts),
        )

    def name(self, label: str) -> str:
        return self.source.display(self.setting, label)

    def _counted(self, label: str) -> str:
        """Return whose seeds are counted; those of a margin ratio belong to two labels."""
        ratio = self.source.paper.margin_ratio if self.entry.get("measure") == "margin_ratio" else None
        return self.name(label) + (f" / {self.name(ratio.under.label)}" if ratio is not None else "")

    def text(self, sample: Sample) -> str:
        logits = any(word in str(self.entry.get("measure")) for word in ("margin", "gradient"))
        return (MARGINS if logits else Rounding()).text(sample)

    def missing(self, labels: Sequence[str], measure: str | None = None, before: str = "") -> list[ClaimPart]:
        """Return the part that has no numbers for these labels.

        If all their trainings are lost, the part was run and stays undecided; otherwise it was not run.
        """
        lost = {label: seeds for label in labels if (seeds := self._all_lost(label, measure)) is not None}
        missing = [self.name(label) for label in labels if label not in lost]
        counts = [f"{self._counted(label)} {seeds.text}" for label, seeds in lost.items()]
        if missing:
            evidence = f"{before}no numbers for {', '.join(missing)}"
            return [ClaimPart(self.where, "not run", evidence, notes=tuple(counts))]
        return [ClaimPart(self.where, "undecided", f"{before}{'; '.join(counts)}")]

    def missing_name(self, label: str, measure: str | None = None) -> str:
        """Return the name of a label without numbers, with the seeds that it lost."""
        lost = self._all_lost(label, measure)
        return self.name(label) + (f" ({lost.text})" if lost is not None else "")

    def _all_lost(self, label: str, measure: str | None) -> Seeds | None:
        """Return the label's seeds if all of them are lost, else None.

        Also None if no label of the claim has this measure: then the measure was not taken.
        """
        name = measure or self.measures[0]
        seeds = self.source.seeds(self._key(label, "autoattack" if name == "sum" else name))
        if seeds is None or not seeds.all_lost:
            return None
        roles = ("first", "second", "series")
        all_labels = [str(entry) for role in roles for entry in listed(self.entry.get(role, []))]
        return seeds if any(self._peek(other, name, None) is not None for other in all_labels) else None
