"""Adding seeds to two labels of a study until a claim about them is decided, by an anytime-valid test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reports.analysis.added_seeds import added_seeds
from reports.analysis.claims.pairs import Pair, paper_pairs, parse, undecided
from reports.analysis.measures import DIAGNOSTICS, OWN_CHECKPOINT
from reports.analysis.results import Results
from reports.analysis.sequential import growth
from reports.papers.paper import Paper
from reports.store.load import load
from sweep import studies
from sweep.claim import Asked, Rules, Say, keep, tell, update
from sweep.commands import narrowed, option_words, spelled, store_words
from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.errors import UserError
from sweep.store.base import Store
from sweep.store.records.decision import DecisionRecord
from sweep.store.usage import usages, used_hours
from sweep.studies.model import Study
from sweep.studies.options import StudyOptions
from sweep.trials import cells as planned
from sweep.work.summary import Summary
from trainers import composition
from trainers.attacks.scoring import suites

SHORTEST_HOURS = 1e-6  # nothing is started below this remaining budget, which is passed on with nine decimals


@dataclass
class Budget:
    """Device-hours that one command may spend, over all its runs and studies."""

    hours: float | None
    used: float = 0.0

    @property
    def ended(self) -> bool:
        return self.hours is not None and self.hours - self.used < SHORTEST_HOURS

    def of_study(self, store: Store, study: str) -> str | None:
        """Return the budget as a run counts it, including what the study has used before."""
        if self.hours is None:
            return None
        return f"{used_hours(usages(store, study)) + self.hours - self.used:.9f}h"


def ask(options: StudyOptions, text: str, measure: str | None, rules: Rules) -> Asked:
    """Parse a claim and check it against its study, before anything runs."""
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
    """Return the paper's claims about two labels of this study that its rule leaves open, and those asked before.

    Decided claims remain in the list, so that the number of levels does not drop with each decision.
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
    # Another order of the seeds would give the same claim a second chance.
    settings = [one for one in options.settings or () if one.partition("=")[0].strip() != "seeds"]
    options = replace(options, settings=settings)
    first = replace(options, methods=",".join(pair.labels)).load()
    seeds = seed_order(first, rules.max_seeds)
    study = replace(options, methods=",".join(pair.labels), seeds=",".join(map(str, seeds))).load()
    return Asked(options, pair, study)


def _methods(text: str) -> list[str]:
    """Return the words of a claim that are known methods. Those without a label in the study join it with defaults."""
    found = []
    for word in text.replace("<", " ").replace(">", " ").split():
        try:
            composition.parse(word)
            found.append(word)
        except ValueError:
            continue
    return found


def seed_order(study: Study, most: int) -> list[int]:
    """Return `most` seeds: the study's own, then the smallest unused ones. The order does not depend on any result."""
    taken = {seed for search in study.searches().values() for seed in search.seeds}
    order = sorted(study.seeds)[:most]
    candidate = 0
    while len(order) < most:
        if candidate not in order and candidate not in taken:
            order.append(candidate)
        candidate += 1
    return order


def measures(study: Study) -> set[tuple[str, str | None]]:
    """Return the names and radii of what a finished trial of the study measures; None is the study's own radius."""
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
    """Spend the budget, the most promising claim first. Print and store every look.

    Returns:
        False if a run failed; the other claims continue without it.
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
        keep(chosen, store, options, rules)  # before the seeds run, so that they are marked however this command ends
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
    """Sort seeds into those that this command added and those that were planned or run by number before it."""
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
    """Run the next batch of seeds with the ordinary engine, which skips what is stored."""
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
    """Return the plain run command that makes these trials, for their records."""
    return spelled("sweep.run", *options.words(), *option_words(data_dir=data_dir), *store_words(store.uri))


def stored_studies(store: Store) -> list[str]:
    """Return the studies that are both stored and shipped: their claims need no --study, and more seeds can be run."""
    found = [name for name in store.manifests() if name in studies.shipped()]
    if not found:
        raise UserError(f"store {store.uri} holds no shipped study; name one with --study, such as digits")
    return found
