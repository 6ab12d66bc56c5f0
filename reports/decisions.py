"""The stored decisions of a study as lines for tables and page: what was claimed, how it ended, after which seeds."""

from __future__ import annotations

from dataclasses import dataclass

from reports.claims.pairs import Pair
from reports.results import Results
from reports.sequential import number_words, outcome_words, record_look
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
    claim: str  # in display names
    outcome: str
    numbers: str
    verdict: str

    @property
    def line(self) -> str:
        return f"{self.claim}: {self.outcome}; {self.numbers}."


def decisions(results: Results, study: str) -> list[Decision]:
    """Those made of trials that the study has now: a decision about other configurations says nothing of them."""
    found = sorted(_current(results, study), key=lambda one: (one.first, one.second, one.path))
    return [_shown(results, record) for record in found]


def asked_pairs(results: Results, study: str, measure: str) -> set[frozenset[str]]:
    """Which labels are compared seed by seed already: what a table would advise for them says less."""
    return {frozenset((one.first, one.second)) for one in _current(results, study) if one.measure == measure}


def _current(results: Results, study: str) -> list[DecisionRecord]:
    return [record for record in results.data.decisions if record.study == study and _is_current(results, record)]


def _is_current(results: Results, record: DecisionRecord) -> bool:
    for label, place in ((record.first, 0), (record.second, 1)):
        if label not in results.labels[record.study]:
            return False
        now = {one.seed: one.trial for one in results.seeds(record.study, label)}
        if any(now.get(seed) != pair[place][:16] for seed, pair in zip(record.seeds, record.trials, strict=True)):
            return False
    return True


def _shown(results: Results, record: DecisionRecord) -> Decision:
    seen = record_look(record)
    assert seen is not None  # a record has at least two seeds
    names, pair = results.labels[record.study], Pair.of(record)
    shown = Pair(names[pair.first], names[pair.second], pair.direction, pair.margin).text
    numbers = number_words(seen, record.alpha, pair.points)
    return Decision(
        f"{shown} ({pair.measured})",
        outcome_words(seen, len(record.left_out)),
        # One claim may have been asked at several levels, or by seeds in another order.
        f"seeds {seed_list(record.seeds[: seen.n])} ({_added(results, record)}), α = {record.alpha:g}: {numbers}",
        "undecided" if record.left_out else seen.verdict,
    )


def _added(results: Results, record: DecisionRecord) -> str:
    """Which of them were not there before the claim was looked at."""
    found = {seed for label in (record.first, record.second) for seed in results.added(record.study, label)}
    added = found.intersection(record.seeds)
    return f"added: {seed_list(added)}" if added else "none added"
