"""The stored decisions of a study as lines for tables and page: the claim, its outcome and the seeds used."""

from __future__ import annotations

from dataclasses import dataclass

from reports.analysis.claims.pairs import Pair
from reports.analysis.results import Results
from reports.analysis.sequential import number_words, outcome_words, record_look
from sweep.listing import seed_list
from sweep.store.records.decision import DecisionRecord

NOTE = (
    "Sequential: seeds are added until the claim is decided or the budget ends; the differences at equal seeds are "
    "tested by an e-value, whose error rate holds whenever one looks, for a claim that was named before its first "
    "seeds were seen; of one that they suggested it does not. Each claim has its own level: of N claims at most N·α "
    "are decided wrongly on average. These decisions replace no verdict of the tables, whose tests suppose that the "
    "number of seeds was fixed before; neither tests nor means have the seeds added here."
)


@dataclass(frozen=True)
class Decision:
    """A stored decision in words."""

    claim: str  # in display names
    outcome: str
    numbers: str
    verdict: str

    @property
    def line(self) -> str:
        return f"{self.claim}: {self.outcome}; {self.numbers}."


def decisions(results: Results, study: str) -> list[Decision]:
    """Return the decisions of a study that were made from its present trials.

    A decision about other configurations says nothing about the present ones.
    """
    records = sorted(_current(results, study), key=lambda record: (record.first, record.second, record.path))
    return [_summary(results, record) for record in records]


def asked_pairs(results: Results, study: str, measure: str) -> set[frozenset[str]]:
    """Return the pairs of labels that a decision by this measure compares already. Tables give no advice on them."""
    records = _current(results, study)
    return {frozenset((record.first, record.second)) for record in records if record.measure == measure}


def _current(results: Results, study: str) -> list[DecisionRecord]:
    return [record for record in results.data.decisions if record.study == study and _is_current(results, record)]


def _is_current(results: Results, record: DecisionRecord) -> bool:
    """Return whether the study's present trials are those that the decision was made from."""
    for label, side in ((record.first, 0), (record.second, 1)):
        if label not in results.labels[record.study]:
            return False
        trials = {planned.seed: planned.trial for planned in results.seeds(record.study, label)}
        if any(trials.get(seed) != pair[side][:16] for seed, pair in zip(record.seeds, record.trials, strict=True)):
            return False
    return True


def _summary(results: Results, record: DecisionRecord) -> Decision:
    result = record_look(record)
    assert result is not None  # a record has at least two seeds
    names, pair = results.labels[record.study], Pair.of(record)
    claim = Pair(names[pair.first], names[pair.second], pair.direction, pair.margin).text
    numbers = number_words(result, record.alpha, pair.points)
    return Decision(
        f"{claim} ({pair.measured})",
        outcome_words(result, len(record.left_out)),
        # The same claim may be decided at several levels, or with its seeds in another order.
        f"seeds {seed_list(record.seeds[: result.n])} ({_added(results, record)}), α = {record.alpha:g}: {numbers}",
        "undecided" if record.left_out else result.verdict,
    )


def _added(results: Results, record: DecisionRecord) -> str:
    """Name the seeds of a decision that were added after the first look."""
    all_added = {seed for label in (record.first, record.second) for seed in results.added(record.study, label)}
    added = all_added.intersection(record.seeds)
    return f"added: {seed_list(added)}" if added else "none added"
