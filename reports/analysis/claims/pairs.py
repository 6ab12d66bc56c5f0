"""Claims that compare two labels of a study, which additional seeds can decide."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from reports.analysis.claims.kinds import KINDS
from reports.analysis.claims.question import Question, listed
from reports.analysis.claims.sources import Ours
from reports.analysis.measures import DIAGNOSTICS, SHARES
from reports.analysis.names import attack_name
from reports.analysis.results import Results
from reports.analysis.statistics import Sample
from reports.papers.paper import Paper
from reports.tables.table import Key, TableCell
from sweep.errors import UserError
from sweep.store.records.decision import DecisionRecord
from trainers.plugins.spelling import nearest

Direction = Literal[1, -1]
NUMBER = r"\d+(?:\.\d+)?"
COMPARED = re.compile(
    rf"\s*(?P<first>\S+)(?:\s+[-−]\s+(?P<minus>\S+))?\s*(?P<sign>[<>])\s*"
    rf"(?P<second>[^\s<>]+)(?:\s*(?P<side>[+−-])\s*(?P<margin>{NUMBER}))?\s*"
)
SHAPE = "must look like 'sovr > at', 'sovr < at', 'sovr > at + 1' or 'sovr - at > 1'"


@dataclass(frozen=True)
class Pair:
    """The claim that `first` is above (direction 1) or below (-1) `second` by more than a margin."""

    first: str
    second: str
    direction: Direction = 1
    margin: float = 0.0  # in the measure's own unit
    measure: str = "autoattack"
    epsilon: str | None = None
    checkpoint: str | None = None
    claim: str = field(default="", compare=False)  # the paper's words if it is one of the paper's claims

    @property
    def text(self) -> str:
        sign = ">" if self.direction > 0 else "<"
        margin = f" {'+' if self.margin > 0 else '-'} {abs(self.margin):g}" if self.margin else ""
        return f"{self.first} {sign} {self.second}{margin}"

    @property
    def measured(self) -> str:
        """Return measure, radius and checkpoint in words."""
        radius = f", ε = {self.epsilon}" if self.epsilon else ""
        at = f", checkpoint {self.checkpoint}" if self.checkpoint else ""
        name = self.measure.replace("_", " ") if self.measure in DIAGNOSTICS else attack_name(self.measure)
        return f"{name}{radius}{at}"

    @property
    def points(self) -> str:
        """Return the unit that follows its numbers: percentage points, or nothing for margins and norms."""
        norms = set(DIAGNOSTICS) - set(SHARES)
        return "" if self.measure == "margin" or self.measure in norms else " points"

    @property
    def mirrored(self) -> Pair:
        """Return the same claim from the other side: a < b - 1 for b > a + 1."""
        direction: Direction = -1 if self.direction > 0 else 1
        return replace(self, first=self.second, second=self.first, direction=direction, margin=0.0 - self.margin)

    @property
    def labels(self) -> list[str]:
        return [self.first, self.second]

    @classmethod
    def of(cls, record: DecisionRecord) -> Pair:
        return cls(
            record.first,
            record.second,
            record.direction,
            record.margin,
            record.measure,
            record.epsilon,
            record.checkpoint,
        )


def parse(text: str, labels: Collection[str]) -> Pair:
    """Return the pair of a typed claim.

    Labels may contain + and -, so a margin must be separated by spaces where it could be part of a label.
    """
    match = COMPARED.fullmatch(text)
    if match is None:
        raise UserError(f"claim {text!r}: {SHAPE}")
    direction: Direction = 1 if match["sign"] == ">" else -1
    first, second, margin = match["first"], match["second"], 0.0
    if match["minus"] is not None:
        if not re.fullmatch(rf"[+−-]?{NUMBER}", second) or match["margin"]:
            raise UserError(f"claim {text!r}: a difference must be compared with a number; {SHAPE}")
        margin, second = float(second.replace("−", "-")), match["minus"]
    elif match["margin"] is not None:
        margin = float(match["margin"]) * (1 if match["side"] == "+" else -1)
    elif second not in labels and (attached := re.fullmatch(rf"(.+?)([+−-])({NUMBER})", second)):
        second, margin = attached[1], float(attached[3]) * (1 if attached[2] == "+" else -1)
    for label in (first, second):
        if label not in labels:
            raise UserError(f"claim {text!r}: unknown label {label!r}{nearest(label, labels)} known: {listing(labels)}")
    if first == second:
        raise UserError(f"claim {text!r}: both sides are {first!r}; name two labels")
    return Pair(first, second, direction, margin)


def listing(names: Collection[str]) -> str:
    return ", ".join(sorted(names))


def paper_pairs(
    paper: Paper, study: str, labels: Collection[str], measured: Collection[tuple[str, str | None]]
) -> list[Pair]:
    """Return the paper's claims that seeds of one study can decide: about two of its labels, by a measure that it has.

    measured: names of attacks with their radii, None for the study's own radius.
    """
    pairs: dict[Pair, None] = {}
    for entry in paper.claims:
        if _concerns(paper, entry, study):
            for pair in _pairs(entry):
                wanted = [name for name in listed(entry["measure"]) if (name, pair.epsilon) in measured]
                if wanted and {pair.first, pair.second} <= set(labels):
                    pair = replace(pair, measure=wanted[0])
                    if pair.mirrored not in pairs:
                        pairs.setdefault(pair)
    return list(pairs)


def undecided(results: Results, study: str, pair: Pair) -> bool:
    """Return whether the claim's own rule leaves it open by the records so far."""
    kind = "greater" if pair.direction > 0 else "lower"
    entry: dict[str, Any] = {"first": pair.first, "second": pair.second, "measure": pair.measure}
    if pair.margin:
        kind, entry["within"] = "not_worse", -pair.margin
    if pair.checkpoint:
        entry["checkpoint"] = pair.checkpoint
    parts = KINDS[kind].judge(Question(Ours(results), entry, study, pair.epsilon))
    return any(part.verdict in ("undecided", "not run") for part in parts)


def _concerns(paper: Paper, entry: dict[str, Any], study: str) -> bool:
    """Return whether a claim compares labels in this study."""
    if entry["kind"] not in ("greater", "lower", "not_worse"):
        return False
    settings = entry.get("settings", ())
    if study in paper.studies:
        return study in (paper.settings.get(settings, ()) if isinstance(settings, str) else settings)
    return isinstance(settings, str)  # a claim about a group of settings applies to other studies too


def _pairs(entry: dict[str, Any]) -> Iterator[Pair]:
    """Yield the pairs that a claim of the paper compares."""
    direction: Direction = -1 if entry["kind"] == "lower" else 1
    margin = -float(entry["within"]) if entry["kind"] == "not_worse" else 0.0
    for radius in listed(entry.get("epsilon", [None])):
        for first in listed(entry["first"]):
            for second in listed(entry["second"]):
                yield Pair(
                    str(first),
                    str(second),
                    direction,
                    margin,
                    epsilon=radius,
                    checkpoint=entry.get("checkpoint"),
                    claim=entry["claim"],
                )


@dataclass(frozen=True)
class PairedValues:
    """The leading seeds that both labels have, and those among them that were lost."""

    seeds: tuple[int, ...]
    trials: tuple[tuple[str, str], ...]
    differences: tuple[float, ...]
    left_out: tuple[int, ...]
    resolution: float


def paired_values(
    results: Results | None, study: str, pair: Pair, order: list[int], trials: dict[tuple[str, int], str | None]
) -> PairedValues:
    """Return the differences of a pair over the seeds of `order`, up to the first that is not finished.

    trials: the trials that the study plans now. Numbers of other configurations do not count.
    """
    if results is None:
        return PairedValues((), (), (), (), 0.0)
    first, second = (_values(results, study, pair, label) for label in pair.labels)
    status = {
        (label, planned.seed, planned.trial): planned.status
        for label in pair.labels
        for planned in results.seeds(study, label)
    }
    seeds: list[int] = []
    left_out: list[int] = []
    for seed in order:
        wanted = [(label, seed, (trials.get((label, seed)) or "")[:16]) for label in pair.labels]
        states = [status.get(training, "missing") for training in wanted]
        if "collapsed" in states or "failed" in states:
            left_out.append(seed)
        elif states == ["done", "done"] and seed in first.values and seed in second.values:
            seeds.append(seed)
        else:
            break
    pairs = tuple((trials[pair.first, seed] or "", trials[pair.second, seed] or "") for seed in seeds)
    differences = tuple(first.values[seed] - second.values[seed] for seed in seeds)
    return PairedValues(tuple(seeds), pairs, differences, tuple(left_out), max(first.resolution, second.resolution))


@dataclass(frozen=True)
class _SeedValues:
    """The values of one label by seed."""

    values: dict[int, float]
    resolution: float  # one test image, in percent; 0 if the measure is not a share of images


def _values(results: Results, study: str, pair: Pair, label: str) -> _SeedValues:
    """Return the values of one label over the seeds that have all that the measure needs."""
    if label not in results.labels.get(study, {}):
        return _SeedValues({}, 0.0)
    names = ("autoattack", "clean") if pair.measure == "sum" else (pair.measure,)
    cells = [results.cell(Key(study, label, name, pair.epsilon, pair.checkpoint), with_added=True) for name in names]
    by_measure = [_by_seed(cell) for cell in cells]
    shared = [seed for seed in by_measure[0] if all(seed in values for values in by_measure)]
    images = _images(results, study, pair, cells)
    sums = {seed: sum(values[seed] for values in by_measure) for seed in shared}
    return _SeedValues(sums, 100 / min(images) if images else 0.0)


def _images(results: Results, study: str, pair: Pair, cells: list[TableCell]) -> list[float]:
    """Return the numbers of images that the measure is a share of; empty if it is not a share of images."""
    filled = [cell for cell in cells if cell.sample is not None]
    if pair.measure in SHARES:
        checkpoint = pair.checkpoint or results.shown_checkpoint(study)
        trials = [
            planned.trial
            for cell in filled
            for planned in results.seeds(study, cell.label)
            if planned.seed in cell.seeds
        ]
        summaries = [results.data.diagnostics_summary(trial, checkpoint, study) for trial in trials]
        return [number for summary in summaries for name in SHARES[pair.measure] if (number := summary.get(name))]
    of_images = pair.measure == "sum" or any(pair.measure == name for name, _ in _attacks(results, study, pair))
    return [*map(float, results.images(filled))] if filled and of_images else []


def _attacks(results: Results, study: str, pair: Pair) -> list[tuple[str, str]]:
    checkpoint = pair.checkpoint or results.shown_checkpoint(study)
    return [("clean", ""), *results.attacks(study, checkpoint)]


def _by_seed(cell: TableCell) -> dict[int, float]:
    sample: Sample | None = cell.sample
    return {} if sample is None else dict(zip(cell.seeds, sample.values, strict=True))
