"""`python -m sweep.run`: one study from its file to its tables, or with --dry-run a list of what that would take."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweep import listing
from sweep.store.base import Store, open_store
from sweep.studies.model import Study, parse_seeds
from sweep.trials import cells as plan
from sweep.trials.identity import folder

DOES = {"done": "-", "collapsed": "-", "failed": "-", "broken": "train again", "missing": "train", "waiting": "search"}


def load(
    study: str,
    settings: Sequence[str] | None = None,
    methods: str | None = None,
    seeds: str | None = None,
    plugins: Sequence[str] | None = None,
) -> Study:
    """The study behind the command line's options."""
    return Study.load(
        study,
        overrides=settings or (),
        methods=[part.strip() for part in methods.split(",") if part.strip()] if methods is not None else None,
        seeds=parse_seeds(seeds) if seeds is not None else None,
        plugins=plugins or (),
    )


def run(
    study: Study,
    store_uri: str,
    *,
    data_dir: str,
    address: str | None,
    yes: bool,
    retry_failed: bool,
    budget: str | None,
    out: str,
    loggers: Sequence[str],
    verbose: bool,
) -> int:
    """Exit code 0 when every cell has its record, 1 when some failed or are left."""
    from sweep.engine import run_study

    summary = run_study(
        study,
        open_store(store_uri),
        address=address,
        data_dir=data_dir,
        yes=yes,
        retry_failed=retry_failed,
        budget=budget,
        out=Path(out),
        loggers=loggers,
        verbose=verbose,
    )
    return 0 if summary.complete else 1


def show(
    study: Study,
    store_uri: str,
    *,
    retry_failed: bool = False,
    as_json: bool = False,
    cost: dict[str, Any] | None = None,
) -> None:
    """Every trial with what is stored of it and what would run; `cost` asks for estimates too."""
    store = open_store(store_uri)
    cells = plan.expand(study, plan.chosen_values(study, store))
    facts = outlook(study, store, cells, retry_failed)
    if cost is not None:
        from sweep.trials import cost as estimates

        facts["cost"] = estimates.estimate(study, cells, store, **cost)
    if as_json:
        sys.stdout.write(json.dumps(facts, indent=1, default=str) + "\n")
        return
    sys.stdout.write(_text(study, store, facts) + "\n")
    if cost is not None:
        sys.stdout.write(estimates.describe(facts["cost"]) + "\n")


def outlook(study: Study, store: Store, cells: list[plan.Cell], retry_failed: bool = False) -> dict[str, Any]:
    """What is stored of a study and what a run would do, as plain values."""
    states = plan.states(cells, store)
    stored = {path for path in store.evaluation_paths() if not store.is_broken(path)}
    ids = [attack.id for attack in plan.evaluation_attacks(study)]
    trials = []
    for cell, state in zip(cells, states, strict=True):
        again = state == "failed" and retry_failed
        names = plan.evaluated_checkpoints(study, cell.config)
        evaluated = 0
        if cell.trial is not None:
            place = f"evaluations/{folder(cell.trial)}"
            evaluated = sum(f"{place}/{name}/{attack}.json" in stored for name in names for attack in ids)
        trials.append(
            {
                "label": cell.label,
                "method": cell.method,
                "seed": cell.seed,
                "epochs": cell.config.recipe.epochs,
                "steps": cell.config.recipe.steps,
                "hyperparameters": cell.hyperparameters,
                "trial": cell.trial,
                "state": state,
                "would": "train again" if again else DOES.get(state, "-"),
                "evaluations_stored": evaluated,
                "evaluations": len(names) * len(ids) if state not in ("failed", "collapsed") or again else evaluated,
            }
        )
    searches = [
        {"label": label, "id": plan.search_id(study, label), "candidates": search.candidates, "seed": search.seed}
        for label, search in study.searches().items()
    ]
    waiting = {cell.label for cell, state in zip(cells, states, strict=True) if state == "waiting"}
    for search in searches:
        search["state"] = "missing" if search["label"] in waiting else "done"
    return {
        "study": study.name,
        "title": study.title,
        "store": store.uri,
        "trials": trials,
        "searches": searches,
        "attacks": ids,
        "counts": dict(Counter(states)),
        "to_run": sum(trial["would"] != "-" for trial in trials),
        "evaluations": sum(trial["evaluations"] for trial in trials),
        "evaluations_stored": sum(trial["evaluations_stored"] for trial in trials),
    }


def _text(study: Study, store: Store, facts: dict[str, Any]) -> str:
    rows = [
        (
            trial["label"],
            trial["seed"],
            f"{trial['steps']} steps" if trial["steps"] else trial["epochs"],
            trial["trial"][:16] if trial["trial"] else "after the search",
            trial["state"],
            f"{trial['evaluations_stored']}/{trial['evaluations']}",
            trial["would"],
            listing.settings(trial["hyperparameters"]),
        )
        for trial in facts["trials"]
    ]
    headers = ("method", "seed", "epochs", "trial", "stored", "evaluated", "would", "hyperparameters")
    counts = ", ".join(f"{number:,} {state}" for state, number in facts["counts"].items())
    searches = [search for search in facts["searches"] if search["state"] == "missing"]
    lines = [
        f"{study.name}: {study.title} ({study.dataset}, {study.model}); store {store.uri}",
        listing.columns(headers, rows),
        f"{listing.count(len(rows), 'trial')}: {counts}; {facts['to_run']:,} to run",
        f"{listing.count(facts['evaluations'], 'evaluation')}, {facts['evaluations_stored']:,} stored",
    ]
    for search in searches:
        lines.append(f"search {search['label']}: up to {search['candidates']} candidates, seed {search['seed']}")
    if facts["counts"].get("failed"):
        lines.append("failed trials stay as they are; --retry-failed runs them again")
    return "\n".join(lines)


if __name__ == "__main__":
    from sweep.cli import main

    main(["run", *sys.argv[1:]])
