"""Claims that set one label of a study against another, as questions that more seeds can decide."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from reports.claims.kinds import KINDS
from reports.claims.question import Question, listed
from reports.claims.sources import Ours
from reports.measures import DIAGNOSTICS, SHARES
from reports.names import attack_name
from reports.papers.paper import Paper
from reports.results import Results
from reports.statistics import Sample
from reports.tables.table import Key, TableCell
from sweep.errors import UserError
from sweep.store.records.decision import DecisionRecord
from trainers.spelling import nearest

Direction = Literal[1, -1]
NUMBER = r"\d+(?:\.\d+)?"
COMPARED = re.compile(
    rf"\s*(?P<first>\S+)(?:\s+[-−]\s+(?P<minus>\S+))?\s*(?P<sign>[<>])\s*"
    rf"(?P<second>[^\s<>]+)(?:\s*(?P<side>[+−-])\s*(?P<margin>{NUMBER}))?\s*"
)
SHAPE = "must look like 'sovr > at', 'sovr < at', 'sovr > at + 1' or 'sovr - at > 1'"


@dataclass(frozen=True)
class Pair:
    """`first` is above (direction 1) or below (-1) `second` by more than a margin, in the measure's own unit."""

    first: str
    second: str
    direction: Direction = 1
    margin: float = 0.0
    measure: str = "autoattack"
    epsilon: str | None = None
    checkpoint: str | None = None
    claim: str = field(default="", compare=False)  # the paper's words, where it is one of its claims

    @property
    def text(self) -> str:
        sign = ">" if self.direction > 0 else "<"
        margin = f" {'+' if self.margin > 0 else '-'} {abs(self.margin):g}" if self.margin else ""
        return f"{self.first} {sign} {self.second}{margin}"

    @property
    def measured(self) -> str:
        """What is compared, for whoever reads of it."""
        radius = f", ε = {self.epsilon}" if self.epsilon else ""
        at = f", checkpoint {self.checkpoint}" if self.checkpoint else ""
        name = self.measure.replace("_", " ") if self.measure in DIAGNOSTICS else attack_name(self.measure)
        return f"{name}{radius}{at}"

    @property
    def points(self) -> str:
        """The unit of its numbers, as it stands behind them."""
        norms = set(DIAGNOSTICS) - set(SHARES)
        return "" if self.measure == "margin" or self.measure in norms else " points"

    @property
    def mirrored(self) -> Pair:
        """The same said from the other side: a < b - 1 for b > a + 1."""
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
    """The pair in a claim as one types it; labels may hold + and -, so a margin stands apart where that is unclear."""
    match = COMPARED.fullmatch(text)
    if match is None:
        raise UserError(f"claim {text!r}: {SHAPE}")
    direction: Direction = 1 if match["sign"] == ">" else -1
    first, second, margin = match["first"], match["second"], 0.0
    if match["minus"] is not None:
        if not re.fullmatch(rf"[+−-]?{NUMBER}", second) or match["margin"]:
            raise UserError(f"claim {text!r}: after a difference stands a number; {SHAPE}")
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
    """Of the paper's claims, what seeds of one study can answer: two of its labels, by a measure that it takes.

    `measured` has names and radii, None for the study's own.
    """
    found: dict[Pair, None] = {}
    for entry in paper.claims:
        if _asks(paper, entry, study):
            for pair in _pairs(entry):
                wanted = [name for name in listed(entry["measure"]) if (name, pair.epsilon) in measured]
                if wanted and {pair.first, pair.second} <= set(labels):
                    asked = replace(pair, measure=wanted[0])
                    if asked.mirrored not in found:
                        found.setdefault(asked)
    return list(found)


def undecided(results: Results, study: str, pair: Pair) -> bool:
    """Whether the claim's own rule, by what is stored now, leaves it open."""
    kind = "greater" if pair.direction > 0 else "lower"
    entry: dict[str, Any] = {"first": pair.first, "second": pair.second, "measure": pair.measure}
    if pair.margin:
        kind, entry["within"] = "not_worse", -pair.margin
    if pair.checkpoint:
        entry["checkpoint"] = pair.checkpoint
    parts = KINDS[kind].judge(Question(Ours(results), entry, study, pair.epsilon))
    return any(part.verdict in ("undecided", "not run") for part in parts)


def _asks(paper: Paper, entry: dict[str, Any], study: str) -> bool:
    if entry["kind"] not in ("greater", "lower", "not_worse"):
        return False
    settings = entry.get("settings", ())
    if study in paper.studies:
        return study in (paper.settings.get(settings, ()) if isinstance(settings, str) else settings)
    return isinstance(settings, str)  # about a group of settings: another study may be asked the same


def _pairs(entry: dict[str, Any]) -> Iterator[Pair]:
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
    """The leading seeds of an order that both labels have, and those among them that gave no number."""

    seeds: tuple[int, ...]
    trials: tuple[tuple[str, str], ...]
    differences: tuple[float, ...]
    left_out: tuple[int, ...]
    resolution: float


def paired_values(
    results: Results | None, study: str, pair: Pair, order: list[int], trials: dict[tuple[str, int], str | None]
) -> PairedValues:
    """`trials` are the ones that the study asks for now: a number of another configuration does not count."""
    if results is None:
        return PairedValues((), (), (), (), 0.0)
    first, second = (_values(results, study, pair, label) for label in pair.labels)
    status = {(label, one.seed, one.trial): one.status for label in pair.labels for one in results.seeds(study, label)}
    seeds: list[int] = []
    left_out: list[int] = []
    for seed in order:
        asked = [(label, seed, (trials.get((label, seed)) or "")[:16]) for label in pair.labels]
        states = [status.get(one, "missing") for one in asked]
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
    values: dict[int, float]
    resolution: float  # one test image, in percent; 0 where it is no share of images


def _values(results: Results, study: str, pair: Pair, label: str) -> _SeedValues:
    if label not in results.labels.get(study, {}):
        return _SeedValues({}, 0.0)
    names = ("autoattack", "clean") if pair.measure == "sum" else (pair.measure,)
    cells = [results.cell(Key(study, label, name, pair.epsilon, pair.checkpoint), with_added=True) for name in names]
    found = [_by_seed(cell) for cell in cells]
    shared = [seed for seed in found[0] if all(seed in one for one in found)]
    images = _images(results, study, pair, cells)
    return _SeedValues({seed: sum(one[seed] for one in found) for seed in shared}, 100 / min(images) if images else 0.0)


def _images(results: Results, study: str, pair: Pair, cells: list[TableCell]) -> list[float]:
    """Over how many the measure is a share; none where it is no share of images."""
    known = [cell for cell in cells if cell.sample is not None]
    if pair.measure in SHARES:
        checkpoint = pair.checkpoint or results.shown_checkpoint(study)
        trials = [one.trial for cell in known for one in results.seeds(study, cell.label) if one.seed in cell.seeds]
        summaries = [results.data.diagnostics_summary(trial, checkpoint, study) for trial in trials]
        return [number for one in summaries for name in SHARES[pair.measure] if (number := one.get(name))]
    of_images = pair.measure == "sum" or any(pair.measure == name for name, _ in _attacks(results, study, pair))
    return [*map(float, results.images(known))] if known and of_images else []


def _attacks(results: Results, study: str, pair: Pair) -> list[tuple[str, str]]:
    checkpoint = pair.checkpoint or results.shown_checkpoint(study)
    return [("clean", ""), *results.attacks(study, checkpoint)]


def _by_seed(cell: TableCell) -> dict[int, float]:
    sample: Sample | None = cell.sample
    return {} if sample is None else dict(zip(cell.seeds, sample.values, strict=True))
