"""A claim about two labels: its state, the result of a look at it, and the record of that look."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from reports.analysis.claims.pairs import Pair, PairedValues, paired_values
from reports.analysis.results import Results
from reports.analysis.sequential import SCALE, SequentialResult, look, number_words, outcome_words
from sweep.engine.options import RunOptions
from sweep.errors import UserError
from sweep.store.base import Store
from sweep.store.records.decision import DecisionRecord
from sweep.studies.model import Study, searched
from sweep.studies.options import StudyOptions
from sweep.trials import cells as planned

Say = Callable[[str], None]


@dataclass(frozen=True)
class Rules:
    alpha: float = 0.05
    batch: int = 2
    max_seeds: int = 50

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise UserError(f"--alpha {self.alpha:g}: must lie between 0 and 1, such as 0.05")


@dataclass
class Asked:
    """A claim and its current state."""

    options: StudyOptions  # the study's options, before methods and seeds are chosen
    pair: Pair
    study: Study  # with the pair's columns (a searched column beside its own label) and every seed that may be used
    trials: dict[tuple[str, int], str | None] = field(default_factory=dict)
    values: PairedValues = PairedValues((), (), (), (), 0.0)
    seen: SequentialResult | None = None
    planned: dict[str, set[int]] = field(default_factory=dict)  # by label: seeds that no look has asked for
    added: dict[str, set[int]] = field(default_factory=dict)  # by label: seeds that a look has asked for
    lost: tuple[int, ...] = ()  # seeds with a collapsed or failed training, including those after a decision
    stuck: str = ""  # why further seeds are pointless

    @property
    def name(self) -> str:
        return f"{self.study.name}: {self.pair.text} ({self.pair.measured})"

    @property
    def tried(self) -> int:
        return len(self.values.seeds) + len(self.values.left_out)

    @property
    def open(self) -> bool:
        decided = self.seen is not None and self.seen.decided
        return not (decided or self.values.left_out or self.stuck)

    def look(self, alpha: float, most: int | None = None) -> SequentialResult | None:
        """Return the test's result on the first `most` seeds that have a value."""
        return look(
            self.values.differences[:most],
            direction=self.pair.direction,
            margin=self.pair.margin,
            alpha=alpha,
            resolution=self.values.resolution,
        )

    def limited(self, seeds: int) -> StudyOptions:
        """Return the study with the pair's labels and the first `seeds` seeds. Pin the searches of other labels."""
        others = [label for label in self.study.searches() if searched(label) not in self.pair.labels]
        return replace(
            self.options,
            settings=[*(self.options.settings or ()), *(f"search.{label}.pin=true" for label in others)],
            methods=",".join(self.pair.labels),
            seeds=",".join(map(str, self.study.seeds[:seeds])),
        )


def update(one: Asked, store: Store, results: Results | None, rules: Rules) -> None:
    """Update the claim from the results that are stored now."""
    cells = planned.expand(one.study, planned.chosen_values(one.study, store))
    one.trials = {(cell.label, cell.seed): cell.trial for cell in cells}
    first, second = ([one.trials[label, seed] for seed in one.study.seeds] for label in one.pair.labels)
    if None not in first and first == second:
        raise UserError(f"{one.pair.text}: both labels are the very same trials; there is nothing to decide")
    one.values = paired_values(results, one.study.name, one.pair, list(one.study.seeds), one.trials)
    one.lost, one.seen = one.values.left_out, one.look(rules.alpha)
    if one.seen is not None and one.seen.decided:  # results after the decision do not count
        last = one.study.seeds.index(one.values.seeds[one.seen.n - 1])
        one.values = replace(one.values, left_out=tuple(s for s in one.values.left_out if s in one.study.seeds[:last]))
    if one.tried >= len(one.study.seeds):
        one.stuck = f"--max-seeds {len(one.study.seeds)}"


def strictly_decided(asked: Sequence[Asked], alpha: float) -> int:
    """Return how many claims are also decided at this level, using all seeds before the first lost one."""
    found = 0
    for one in asked:
        order = one.study.seeds
        first_lost = min(map(order.index, one.lost), default=len(order))
        seen = one.look(alpha, sum(order.index(seed) < first_lost for seed in one.values.seeds))
        found += seen is not None and seen.decided
    return found


def tell(one: Asked, rules: Rules, say: Say) -> None:
    if one.seen is None:
        say(f"{one.name}: {one.tried} seeds, nothing to test yet")
        return
    seen, left_out = one.seen, len(one.values.left_out)
    outcome = outcome_words(seen, left_out)
    if one.open or (one.stuck and not seen.decided and not left_out):
        ahead = f"about {seen.to_go} more" if seen.to_go is not None else "out of reach"
        if seen.to_go is not None and one.tried + seen.to_go > len(one.study.seeds):
            ahead += f", beyond --max-seeds {len(one.study.seeds)}"
        outcome = f"undecided after {seen.n} seeds; to go if mean and spread stay: {ahead}"
        if one.stuck:
            outcome += f"; ends here ({one.stuck})"
    say(f"{one.name}: {number_words(seen, rules.alpha, one.pair.points)}; {outcome}")


def keep(one: Asked, store: Store, options: RunOptions, rules: Rules) -> None:
    if one.seen is None:
        return
    from sweep.trials.provenance import commit, versions

    seen, values = one.seen, one.values
    record = DecisionRecord(
        study=one.study.name,
        first=one.pair.first,
        second=one.pair.second,
        direction=one.pair.direction,
        margin=one.pair.margin,
        measure=one.pair.measure,
        epsilon=one.pair.epsilon,
        checkpoint=one.pair.checkpoint,
        alpha=rules.alpha,
        scale=SCALE,
        resolution=values.resolution,
        seeds=values.seeds[: seen.n],
        trials=values.trials[: seen.n],
        differences=values.differences[: seen.n],
        added={label: tuple(sorted(seeds)) for label, seeds in one.added.items()},
        left_out=values.left_out,
        verdict="undecided" if values.left_out else seen.verdict,
        estimate=seen.estimate,
        low=None if math.isinf(seen.low) else seen.low,
        high=None if math.isinf(seen.high) else seen.high,
        e_value=seen.e_value,
        versions=versions(),
        commit=commit(),
        command=options.command,
    )
    known = store.usable(DecisionRecord, record.path)
    # A smaller --max-seeds than before sees less than what is stored.
    if known is None or len(known.trials) <= len(record.trials) or known.trials[: len(record.trials)] != record.trials:
        store.write_record(record)
