"""`python -m sweep.status`: what is done, running, failed and left, read from the store by anyone at any time."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from typing import Any

from sweep import listing
from sweep.errors import UserError
from sweep.store.base import BrokenRecord, Store, open_store
from trainers.config import Selection
from trainers.spelling import nearest

SHOWN = 10
EXPLAINED = 100  # failed trials whose record is opened for its reason
ORDER = ("done", "running", "failed", "collapsed", "broken", "left")


def show(store_uri: str, study: str | None = None, *, as_json: bool = False) -> None:
    store = open_store(store_uri)
    broken: list[BrokenRecord] = []
    facts = gather(store, study, broken)
    if broken and not facts:
        raise broken[0]
    for fault in broken:
        sys.stderr.write(f"warning: {fault}\n")
    sys.stdout.write((json.dumps(facts, indent=1) if as_json else _text(store, facts)) + "\n")


def gather(store: Store, study: str | None = None, broken: list[BrokenRecord] | None = None) -> list[dict[str, Any]]:
    """One entry per study in the store, or for the one asked for; what cannot be read is appended to `broken`."""
    broken = [] if broken is None else broken
    manifests = {manifest["name"]: manifest for manifest in store.manifests(broken)}
    if study is not None and study not in manifests:
        for fault in broken:
            if fault.path == f"studies/{study}.json":
                raise fault
        if not manifests:
            raise UserError(f"store {store.uri} holds no study yet; start one with: sweep run --study {study}")
        known = ", ".join(sorted(manifests))
        raise UserError(f"store {store.uri} has no study {study!r}{nearest(study, manifests)} known: {known}")
    stored, claims = store.trial_states(), store.claims()
    evaluated = set(store.evaluation_paths())
    progress = _progress(store, claims, stored)
    wanted = manifests.values() if study is None else [manifests[study]]
    facts = [_study(manifest, stored, claims, evaluated, progress) for manifest in wanted]
    for one in facts:
        one["searches"] = [_search(store, entry, claims, broken) for entry in one["searches"]]
        for trial in [trial for trial in one["trials"] if trial["state"] in ("failed", "collapsed")][:EXPLAINED]:
            record = store.trial_record(trial["trial"]) or {}
            trial["reason"] = record.get("reason")
    return facts


def _study(
    manifest: dict[str, Any],
    stored: dict[str, str],
    claims: dict[str, dict[str, Any]],
    evaluated: set[str],
    progress: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    wanted = {label: _evaluations(manifest, label) for label in manifest["config_by_label"]}
    trials = []
    for cell in manifest["cells"]:
        place = (cell["trial"] or "")[:16]
        claim = claims.get(f"trials-{place}")
        state = stored.get(place) or ("running" if claim else "left")
        trial = {"label": cell["label"], "seed": cell["seed"], "trial": cell["trial"], "state": state}
        if state == "running":
            trial["progress"] = progress.get(place)
        trial["evaluations"] = sum(f"evaluations/{place}/{name}" in evaluated for name in wanted[cell["label"]])
        trials.append(trial)
    return {
        "study": manifest["name"],
        "title": manifest["title"],
        "trials": trials,
        "counts": dict(Counter(trial["state"] for trial in trials)),
        "evaluations": {
            "stored": sum(trial["evaluations"] for trial in trials),
            "wanted": sum(len(wanted[t["label"]]) for t in trials if t["state"] not in ("failed", "collapsed")),
        },
        "searches": manifest["searches"],
    }


def _evaluations(manifest: dict[str, Any], label: str) -> list[str]:
    """The records that a finished trial of this label has in its folder of evaluations."""
    selection = Selection.model_construct(**manifest["config_by_label"][label]["selection"])
    names = selection.named(manifest["study"]["evaluation"]["checkpoints"])
    return [f"{name}/{attack['id']}.json" for name in names for attack in manifest["attacks"]]


def _search(store: Store, entry: dict[str, Any], claims: dict[str, Any], broken: list[BrokenRecord]) -> dict[str, Any]:
    record, state = None, "left"
    try:
        record = store.search_record(entry["id"])
        state = record["status"] if record else "left"
    except BrokenRecord as fault:
        broken.append(fault)
        state = "broken"
    if state in ("left", "running"):  # a record says running also when its driver was stopped
        state = "running" if f"searches-{entry['id']}" in claims else "left"
    candidates = record["candidates"] if record else []
    return {
        **entry,
        "state": state,
        "finished": sum(candidate["state"] != "open" for candidate in candidates),
        "wanted": record["wanted"] if record else None,
        "chosen": record["chosen"] if record and state == "done" else None,
    }


def _progress(store: Store, claims: dict[str, Any], stored: dict[str, str]) -> dict[str, dict[str, Any]]:
    """How far the running trials are, as their workers last wrote it."""
    running = [name.removeprefix("trials-") for name in claims if name.startswith("trials-")]
    found = {}
    for path, data in store.read_many(f"trials/{name}/progress.json" for name in running if name not in stored):
        found[_trial(path)] = json.loads(data)
    return found


def _trial(path: str) -> str:
    return path.split("/")[1]


def _text(store: Store, facts: list[dict[str, Any]]) -> str:
    if not facts:
        return f"store {store.uri} holds no study yet"
    blocks = []
    for study in facts:
        by_label: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for trial in study["trials"]:
            by_label[trial["label"]].append(trial)
        rows = []
        for label, trials in by_label.items():
            counts = Counter(trial["state"] for trial in trials)
            rows.append((label, *(counts[state] or "-" for state in ORDER), _seeds(trials)))
        total = ", ".join(f"{study['counts'][state]:,} {state}" for state in ORDER if study["counts"].get(state))
        evaluations = study["evaluations"]
        lines = [
            f"{study['study']}: {study['title']}",
            listing.columns(("method", *ORDER, "seeds"), rows),
            f"{listing.count(len(study['trials']), 'trial')}: {total}; "
            f"evaluations {evaluations['stored']:,}/{evaluations['wanted']:,}",
        ]
        for search in study["searches"]:
            chose = f", chose {listing.settings(search['chosen'])}" if search["chosen"] else ""
            wanted = f", {search['finished']}/{search['wanted']} candidates" if search["wanted"] else ""
            lines.append(f"search {search['label']}: {search['state']}{wanted}{chose}")
        lines += [
            f"{trial['label']} seed {trial['seed']} {trial['state']}: {trial['reason']} (trials/{trial['trial'][:16]})"
            for trial in study["trials"]
            if trial.get("reason")
        ][:SHOWN]
        if study["counts"].get("failed"):
            lines.append("to run failed trials again: sweep retry, then the same run command")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _seeds(trials: list[dict[str, Any]]) -> str:
    """The seeds that need a word: running with their epoch, failed, collapsed, broken."""
    words = []
    for trial in trials:
        if trial["state"] == "running":
            words.append(f"{trial['seed']} {_how_far(trial['progress'])}")
        elif trial["state"] in ("failed", "collapsed", "broken"):
            words.append(f"{trial['seed']} {trial['state']}")
        if len(words) == 8:
            return "; ".join([*words, "…"])
    return "; ".join(words)


def _how_far(progress: dict[str, Any] | None) -> str:
    if progress is None:
        return "starts"
    seconds = max(0, int(time.time() - progress["updated"]))
    ago = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
    return f"epoch {progress['epoch']}/{progress['epochs']} on {progress['host']} {ago} ago"


if __name__ == "__main__":
    from sweep.cli import main

    main(["status", *sys.argv[1:]])
