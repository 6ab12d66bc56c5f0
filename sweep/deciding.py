"""Adds seeds to two labels of a study until a claim about them is decided, by a test that one may look at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reports.added import added_seeds
from reports.claims.pairs import Pair, paper_pairs, parse, undecided
from reports.measures import DIAGNOSTICS, OWN_CHECKPOINT
from reports.papers.paper import Paper
from reports.results import Results
from reports.sequential import growth
from reports.store.load import load
from sweep import studies
from sweep.claim import Asked, Rules, Say, keep, tell, update
from sweep.commands import narrowed, option_words, spelled, store_words
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

SHORTEST_HOURS = 1e-6  # left of a budget, below which nothing is started: it is passed on with nine decimals


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


def ask(options: StudyOptions, text: str, measure: str | None, rules: Rules) -> Asked:
    """A claim as one types it, checked against its study before anything runs."""
    whole = options.load()
    pair = parse(text, list(dict.fromkeys([*whole.columns(), *_methods(text)])))
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
    """The paper's claims about two labels of this study that its own rule leaves open, and those asked before.

    What is decided stays among them: how many levels there are does not fall with each decision.
    """
    study = options.load()
    pairs = paper_pairs(paper, study.name, study.labels, measures(study))
    results = _results(store, study.name, paper)
    known = store.records(DecisionRecord, store.record_paths(DecisionRecord), skip=lambda broken: None)
    before = {_question(record) for record in known if record.study == study.name}
    return [
        _asked(options, pair, rules)
        for pair in pairs
        if results is None or _question(pair) in before or undecided(results, study.name, pair)
    ]


def _question(one: Pair | DecisionRecord) -> tuple[object, ...]:
    return one.first, one.second, one.direction, one.margin, one.measure, one.epsilon, one.checkpoint


def _asked(options: StudyOptions, pair: Pair, rules: Rules) -> Asked:
    # Another order of the seeds would be a second chance for the same claim.
    settings = [one for one in options.settings or () if one.partition("=")[0].strip() != "seeds"]
    options = replace(options, settings=settings)
    first = replace(options, methods=",".join(pair.labels)).load()
    seeds = seed_order(first, rules.max_seeds)
    study = replace(options, methods=",".join(pair.labels), seeds=",".join(map(str, seeds))).load()
    return Asked(options, pair, study)


def _methods(text: str) -> list[str]:
    """Words of a claim that are known methods: where they are no labels of the study, it gets them with defaults."""
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
    """Spends the budget, on the most promising claim first; False if a run failed: the other claims go on without it.

    Every look is printed and stored.
    """
    going_well = True
    known = list(store.records(DecisionRecord, store.record_paths(DecisionRecord), skip=lambda broken: None))
    for one in asked:
        _tell_seeds_apart(one, store, known)
        update(one, store, _results(store, one.study.name, paper), rules)
        if one.seen is not None:
            tell(one, rules, say)
            keep(one, store, options, rules)
    while True:
        waiting = [one for one in asked if one.open]
        if not waiting:
            return going_well
        if budget.ended:
            say(
                f"the budget of {budget.hours:.3g} device-hours is used up ({budget.used:.3g} used); "
                "the same command may spend as much again and goes on from here"
            )
            return going_well
        chosen = max(waiting, key=lambda one: growth(one.seen, one.pair.margin, rules.batch))
        _add(chosen, _wanted(chosen, rules))
        keep(chosen, store, options, rules)  # before the seeds are there: they are marked however this command ends
        summary = _advance(chosen, store, options, budget, rules, say)
        going_well = going_well and not summary.failed
        results = _results(store, chosen.study.name, paper)
        for one in asked:
            if one is chosen or (one.open and one.study.name == chosen.study.name):
                before = one.tried
                update(one, store, results, rules)
                if one is chosen and one.tried == before and not summary.budget_reached:
                    one.stuck = one.stuck or "the last run gave no new pair"
                if one.tried > before or one.stuck:
                    tell(one, rules, say)
                    keep(one, store, options, rules)


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
    more = one.seen.to_go if one.seen is not None and one.seen.to_go else rules.batch
    return min(one.tried + min(more, rules.batch), len(one.study.seeds))


def _advance(asked: Asked, store: Store, options: RunOptions, budget: Budget, rules: Rules, say: Say) -> Summary:
    """The next batch of seeds, by the ordinary engine: what the store has of it is not computed again."""
    limited = asked.limited(_wanted(asked, rules))
    command = run_command(limited, store, None if str(options.data_dir) == "data" else str(options.data_dir))
    limit = budget.of_study(store, asked.study.name)
    summary = run_study(
        limited.load(), store, replace(options, budget=limit, out=None, command=command, go_on=options.command)
    )
    budget.used += summary.device_hours
    if summary.failed:
        say("\n".join(f"failed: {one.title}: {one.reason or 'in an earlier run'}" for one in summary.failed))
        say(f"to try again: {narrowed(options.command or command, '--retry-failed')}")
        asked.stuck = "a training failed"
    return summary


def _results(store: Store, study: str, paper: Paper) -> Results | None:
    return Results(load(store, [study]), paper) if store.manifest(study) is not None else None


def run_command(options: StudyOptions, store: Store, data_dir: str | None = None) -> str:
    """The plain run that makes these trials, for their records."""
    return spelled("sweep.run", *options.words(), *option_words(data_dir=data_dir), *store_words(store.uri))


def stored_studies(store: Store) -> list[str]:
    """Those whose claims can be asked without a name: in the store, and shipped, so that more of them can be run."""
    found = [name for name in store.manifests() if name in studies.shipped()]
    if not found:
        raise UserError(f"store {store.uri} holds no shipped study; name one with --study, such as digits")
    return found
