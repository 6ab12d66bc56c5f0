"""Adds seeds to two labels of a study until a claim about them is decided, by a test that one may look at any time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from reports.added import added_seeds
from reports.claims.pairs import Pair, PairedValues, paired_values, paper_pairs, parse, undecided
from reports.measures import DIAGNOSTICS, OWN_CHECKPOINT
from reports.papers.paper import Paper
from reports.results import Results
from reports.sequential import SCALE, Look, growth, look, number_words, outcome_words
from reports.store.load import load
from sweep import studies
from sweep.commands import option_words, spelled, store_words
from sweep.engine import run_study
from sweep.errors import UserError
from sweep.store.base import Store
from sweep.store.records.decision import DecisionRecord
from sweep.store.usage import usages, used_hours
from sweep.studies.model import Study
from sweep.studies.options import StudyOptions
from sweep.trials import cells as planned
from sweep.work.options import RunOptions
from sweep.work.summary import Summary
from trainers import composition, suites

Say = Callable[[str], None]
SHORTEST_HOURS = 1e-6  # left of a budget, below which nothing is started: it is passed on with nine decimals


@dataclass(frozen=True)
class Rules:
    alpha: float = 0.05
    batch: int = 2
    max_seeds: int = 50

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise UserError(f"--alpha {self.alpha:g}: must lie between 0 and 1, such as 0.05")


@dataclass
class Budget:
    """Device-hours that one command may spend, over all its runs and studies."""

    hours: float | None
    used: float = 0.0

    @property
    def ended(self) -> bool:
        return self.hours is not None and self.hours - self.used < SHORTEST_HOURS

    def of_study(self, store: Store, study: str) -> str | None:
        """As a run counts it: with what the study has used before."""
        if self.hours is None:
            return None
        return f"{used_hours(usages(store, study)) + self.hours - self.used:.9f}h"


@dataclass
class Asked:
    """One claim and where it stands."""

    options: StudyOptions  # of the study, before methods and seeds are chosen
    pair: Pair
    study: Study  # with the pair's labels and every seed that may be used
    trials: dict[tuple[str, int], str | None] = field(default_factory=dict)
    values: PairedValues = PairedValues((), (), (), (), 0.0)
    seen: Look | None = None
    planned: dict[str, set[int]] = field(default_factory=dict)  # by label, seeds that no look has asked for
    added: dict[str, set[int]] = field(default_factory=dict)  # by label, those that one has
    stuck: str = ""  # why no further seed is worth it

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

    def look(self, alpha: float) -> Look | None:
        return look(
            self.values.differences,
            direction=self.pair.direction,
            margin=self.pair.margin,
            alpha=alpha,
            resolution=self.values.resolution,
        )

    def limited(self, seeds: int) -> StudyOptions:
        """The study with this pair's labels and the first of its seeds."""
        return replace(
            self.options, methods=",".join(self.pair.labels), seeds=",".join(map(str, self.study.seeds[:seeds]))
        )


def ask(options: StudyOptions, text: str, measure: str | None, rules: Rules) -> Asked:
    """A claim as one types it, checked against its study before anything runs."""
    whole = options.load()
    pair = parse(text, [*whole.labels, *_methods(whole, text)])
    known = measures(whole)
    if measure is None:
        robust = [name for name, radius in known if radius is None and name not in (*_WITHOUT_ATTACK, *DIAGNOSTICS)]
        measure = "autoattack" if ("autoattack", None) in known else (robust or ["clean"])[0]
    elif (measure, None) not in known:
        names = ", ".join(sorted({name for name, radius in known if radius is None}))
        raise UserError(
            f"--measure {measure}: study {whole.name} does not take it; it takes {names}. Another attack is added by "
            f"--set evaluation.attacks=[{measure}]"
        )
    return _asked(options, replace(pair, measure=measure, checkpoint=OWN_CHECKPOINT.get(measure)), rules)


_WITHOUT_ATTACK = ("clean", "margin", "sum")


def ask_paper(options: StudyOptions, paper: Paper, store: Store, rules: Rules) -> list[Asked]:
    """The paper's claims about two labels of this study that neither its own rule nor an earlier decision settles."""
    study = options.load()
    pairs = paper_pairs(paper, study.name, study.labels, measures(study))
    results = _results(store, study.name, paper)
    found = []
    for pair in pairs:
        if results is None or undecided(results, study.name, pair):
            one = _asked(options, pair, rules)
            update(one, store, results, rules)
            if one.open:
                found.append(one)
    return found


def _asked(options: StudyOptions, pair: Pair, rules: Rules) -> Asked:
    # Another order of the seeds would be a second chance for the same claim.
    settings = [one for one in options.settings or () if one.partition("=")[0].strip() != "seeds"]
    options = replace(options, settings=settings)
    first = replace(options, methods=",".join(pair.labels)).load()
    seeds = seed_order(first, rules.max_seeds)
    study = replace(options, methods=",".join(pair.labels), seeds=",".join(map(str, seeds))).load()
    return Asked(options, pair, study)


def _methods(study: Study, text: str) -> list[str]:
    """Words of a claim that are no labels of the study but known methods, which it then gets with their defaults."""
    found = []
    for word in text.replace("<", " ").replace(">", " ").split():
        try:
            composition.parse(word)
            found.append(word)
        except ValueError:
            continue
    return found


def seed_order(study: Study, most: int) -> list[int]:
    """The study's own seeds, then the smallest others: an order that no result has a part in."""
    taken = {seed for search in study.searches().values() for seed in search.seeds}
    order = sorted(study.seeds)[:most]
    candidate = 0
    while len(order) < most:
        if candidate not in order and candidate not in taken:
            order.append(candidate)
        candidate += 1
    return order


def measures(study: Study) -> set[tuple[str, str | None]]:
    """What a finished trial of the study has numbers for: names and radii, None for the study's own radius."""
    attacks = planned.evaluation_attacks(study)
    found: set[tuple[str, str | None]] = {("clean", None)}
    own = [one for one in attacks if one.norm == study.evaluation_norm]
    found |= {(one.name, one.epsilon) for one in own}
    found |= {(f"{one.name}@{one.norm}", one.epsilon) for one in attacks if one not in own and one.name != "clean"}
    found |= {(one.name, None) for one in own if one.epsilon == study.evaluation.epsilon}
    diagnosed = study.evaluation.diagnostics or suites.wants_diagnostics(study.evaluation.suite)
    if diagnosed:
        found |= {(name, None) for name in DIAGNOSTICS}
    found.add(("margin", None))
    if ("autoattack", None) in found:
        found.add(("sum", None))
    return found


def settle(
    asked: Sequence[Asked], store: Store, options: RunOptions, budget: Budget, rules: Rules, paper: Paper, say: Say
) -> bool:
    """Spends the budget, on the most promising claim first; False if a run failed. Every look is printed and stored."""
    known = list(store.records(DecisionRecord, store.record_paths(DecisionRecord), skip=lambda broken: None))
    for one in asked:
        _tell_seeds_apart(one, store, known)
        update(one, store, _results(store, one.study.name, paper), rules)
        if one.seen is not None:
            _tell(one, rules, say)
            _keep(one, store, options, rules)
    while True:
        waiting = [one for one in asked if one.open]
        if not waiting:
            return True
        if budget.ended:
            say(
                f"the budget of {budget.hours:.3g} device-hours is used up ({budget.used:.3g} used); "
                "the same command may spend as much again and goes on from here"
            )
            return True
        chosen = max(waiting, key=lambda one: growth(one.seen, one.pair.margin, rules.batch))
        _add(chosen, _wanted(chosen, rules))
        _keep(chosen, store, options, rules)  # before the seeds are there: they are marked however this command ends
        summary = _advance(chosen, store, options, budget, rules, say)
        if summary.failed:
            return False
        results = _results(store, chosen.study.name, paper)
        for one in asked:
            if one.open and one.study.name == chosen.study.name:
                before = one.tried
                update(one, store, results, rules)
                if one is chosen and one.tried == before and not summary.budget_reached:
                    one.stuck = one.stuck or "the last run gave no new pair"
                if one.tried > before or one.stuck:
                    _tell(one, rules, say)
                    _keep(one, store, options, rules)


def _tell_seeds_apart(one: Asked, store: Store, decisions: Sequence[DecisionRecord]) -> None:
    """A study's own seeds, and those that somebody has run by their number, are not of this command's choice."""
    own, manifest = set(one.options.load().seeds), store.manifest(one.study.name)
    cells = planned.expand(one.study, planned.chosen_values(one.study, store))
    trials = {(cell.label, cell.seed): cell.trial for cell in cells}
    for label in one.pair.labels:
        of_label = {seed: trial or "" for (name, seed), trial in trials.items() if name == label}
        one.added[label] = added_seeds(decisions, one.study.name, label, of_label)
        stored = {cell.seed for cell in manifest.cells if cell.label == label} if manifest is not None else set()
        one.planned[label] = (own | stored) - one.added[label]


def _add(one: Asked, seeds: int) -> None:
    for label in one.pair.labels:
        one.added[label] |= set(one.study.seeds[:seeds]) - one.planned[label]


def _wanted(one: Asked, rules: Rules) -> int:
    return min(one.tried + rules.batch, len(one.study.seeds))


def _advance(asked: Asked, store: Store, options: RunOptions, budget: Budget, rules: Rules, say: Say) -> Summary:
    """The next batch of seeds, by the ordinary engine: what the store has of it is not computed again."""
    limited = asked.limited(_wanted(asked, rules))
    command = run_command(limited, store, None if str(options.data_dir) == "data" else str(options.data_dir))
    limit = budget.of_study(store, asked.study.name)
    summary = run_study(limited.load(), store, replace(options, budget=limit, out=None, command=command))
    budget.used += summary.device_hours
    if summary.failed:
        say("\n".join(f"failed: {one.title}: {one.reason or 'in an earlier run'}" for one in summary.failed))
        say(f"to try again: {command} --retry-failed")
        asked.stuck = "a training failed"
    return summary


def update(one: Asked, store: Store, results: Results | None, rules: Rules) -> None:
    """Where the claim stands by what is stored now."""
    cells = planned.expand(one.study, planned.chosen_values(one.study, store))
    one.trials = {(cell.label, cell.seed): cell.trial for cell in cells}
    first, second = ([one.trials[label, seed] for seed in one.study.seeds] for label in one.pair.labels)
    if None not in first and first == second:
        raise UserError(f"{one.pair.text}: both labels are the very same trials; there is nothing to decide")
    one.values = paired_values(results, one.study.name, one.pair, list(one.study.seeds), one.trials)
    one.seen = one.look(rules.alpha)
    if one.seen is not None and one.seen.decided:  # what came after the decision has no part in it
        last = one.study.seeds.index(one.values.seeds[one.seen.n - 1])
        one.values = replace(one.values, left_out=tuple(s for s in one.values.left_out if s in one.study.seeds[:last]))
    if one.tried >= len(one.study.seeds):
        one.stuck = f"--max-seeds {len(one.study.seeds)}"


def strictly_decided(asked: Sequence[Asked], alpha: float) -> int:
    """How many are decided at this level too, by all seeds that are there."""
    looks = [one.look(alpha) for one in asked if not one.values.left_out]
    return sum(seen is not None and seen.decided for seen in looks)


def _results(store: Store, study: str, paper: Paper) -> Results | None:
    return Results(load(store, [study]), paper) if store.manifest(study) is not None else None


def _tell(one: Asked, rules: Rules, say: Say) -> None:
    if one.seen is None:
        say(f"{one.name}: {one.tried} seeds, nothing to test yet")
        return
    seen, left_out = one.seen, len(one.values.left_out)
    points = "" if one.pair.measure in ("margin", *DIAGNOSTICS) else " points"
    outcome = outcome_words(seen, left_out)
    if one.open or (one.stuck and not seen.decided and not left_out):
        ahead = f"about {seen.to_go} more" if seen.to_go is not None else "out of reach"
        outcome = f"undecided after {seen.n} seeds; to go if mean and spread stay: {ahead}"
        if one.stuck:
            outcome += f"; ends here ({one.stuck})"
    say(f"{one.name}: {number_words(seen, rules.alpha, points)}; {outcome}")


def _keep(one: Asked, store: Store, options: RunOptions, rules: Rules) -> None:
    if one.seen is None:
        return
    from sweep.trials.provenance import commit, versions

    seen, values = one.seen, one.values
    store.write_record(
        DecisionRecord(
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
    )


def run_command(options: StudyOptions, store: Store, data_dir: str | None = None) -> str:
    """The plain run that makes these trials, for their records."""
    return spelled("sweep.run", *options.words(), *option_words(data_dir=data_dir), *store_words(store.uri))


def stored_studies(store: Store) -> list[str]:
    """Those whose claims can be asked without a name: in the store, and shipped, so that more of them can be run."""
    found = [name for name in store.manifests() if name in studies.shipped()]
    if not found:
        raise UserError(f"store {store.uri} holds no shipped study; name one with --study, such as digits")
    return found
