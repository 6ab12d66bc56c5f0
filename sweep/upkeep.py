"""Keeping a store in order: trying failed trials again, deleting what no table needs."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from typing import Any

from sweep import listing
from sweep.errors import UserError
from sweep.store.base import ATTENTION, RECORD, FolderStore, Store, open_store
from sweep.studies.model import parse_seeds
from trainers.config import Selection
from trainers.spelling import nearest
from trainers.suites import wants_diagnostics

KEEP = ("selected", "all")
# What is younger may be in use by a writer that has just begun.
LEFTOVER_SECONDS = 3600.0
WEIGHTS = ".safetensors"


def retry(
    store_uri: str, study: str | None, methods: str | None, seeds: str | None, *, dry_run: bool = False
) -> list[str]:
    """Put failed trials' records aside; the next run starts them from their last checkpoint. Returns their folders."""
    store = existing(store_uri)
    cells = _cells(store, study)
    wanted = [part.strip() for part in methods.split(",") if part.strip()] if methods is not None else None
    if wanted == []:
        raise UserError(f"--methods {methods!r} names no method; leave it out for all")
    for label in wanted or ():
        labels = {cell["label"] for found in cells.values() for cell in found}
        if label not in labels:
            raise UserError(f"--methods: unknown {label!r}{nearest(label, labels)} known: {', '.join(sorted(labels))}")
    numbers = parse_seeds(seeds) if seeds is not None else None
    chosen = []
    for place, state in sorted(store.trial_states().items()):
        if state not in ("failed", "broken"):
            continue
        matching = [
            cell
            for cell in cells.get(place, ())
            if (wanted is None or cell["label"] in wanted) and (numbers is None or cell["seed"] in numbers)
        ]
        if not matching and (study or wanted or numbers):
            continue
        chosen.append(place)
        names = ", ".join(f"{cell['label']} seed {cell['seed']}" for cell in matching) or "a search's candidate"
        _say(f"{'would retry' if dry_run else 'to be run again'}: {names} ({place})")
        if not dry_run:
            _set_aside(store, f"trials/{place}")
    _say(f"{listing.count(len(chosen), 'trial')} {'would be' if dry_run else ''} set free".replace("  ", " "))
    return chosen


def gc(store_uri: str, *, keep: str = "selected", dry_run: bool = False) -> int:
    """Delete what no table, resume or evaluation needs; returns the bytes."""
    if keep not in KEEP:
        raise UserError(f"--keep {keep}: must be one of: {', '.join(KEEP)}")
    store = existing(store_uri)
    doomed = _doomed(store, keep)
    total = 0
    for reason, entries in doomed.items():
        size = sum(size for _, size in entries)
        total += size
        _say(f"{reason}: {listing.count(len(entries), 'file')}, {listing.size(size)}")
        for path, _ in [] if dry_run else entries:
            store.delete(path)
    _say(f"{'would free' if dry_run else 'freed'} {listing.size(total)} ({total} bytes)")
    return total


def existing(store_uri: str) -> Store:
    """The store, which must be there: upkeep of a misspelt folder would quietly do nothing."""
    store = open_store(store_uri)
    if isinstance(store, FolderStore) and not store.root.is_dir():
        raise UserError(f"store {store_uri} does not exist")
    return store


def _doomed(store: Store, keep: str) -> dict[str, list[tuple[str, int]]]:
    states, kept, running = store.trial_states(), _kept_checkpoints(store), store.claims()
    evaluated = set(store.evaluation_paths())
    old = time.time() - LEFTOVER_SECONDS
    doomed: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for entry in store.entries():
        folder, _, rest = entry.path.partition("/")
        place, _, name = rest.partition("/")
        if folder == "trials" and states.get(place) in ("done", "collapsed") and f"trials-{place}" not in running:
            if name in ("resume.pt", "progress.json"):
                doomed["resume states of finished trials"].append((entry.path, entry.size))
            elif name.endswith(WEIGHTS) and keep == "selected":
                if name.removesuffix(WEIGHTS) not in kept.get(place, ()):
                    doomed["checkpoints that no study selects"].append((entry.path, entry.size))
        elif folder == "evaluations" and entry.path.count("/") == 4:
            merged = f"{entry.path.rpartition('/')[0]}.json" in evaluated
            if merged and entry.modified < old:
                doomed["shards of finished evaluations"].append((entry.path, entry.size))
        elif folder == "claims" and entry.modified < old and rest.rpartition(".")[0].rpartition(".")[0] not in running:
            doomed["expired claims"].append((entry.path, entry.size))
    if isinstance(store, FolderStore):
        for file in store.temporary_files():
            facts = file.stat()
            if facts.st_mtime < old:
                path = file.relative_to(store.root).as_posix()
                doomed["files of writers that were killed"].append((path, facts.st_size))
    return doomed


def _kept_checkpoints(store: Store) -> dict[str, set[str]]:
    """Folder of a trial -> checkpoints that some study evaluates, or reads for its diagnostics."""
    kept: dict[str, set[str]] = defaultdict(set)
    for manifest in store.manifests():
        evaluation = manifest["study"]["evaluation"]
        for cell in manifest["cells"]:
            if cell["trial"] is None:
                continue
            selection = Selection.model_construct(**manifest["config_by_label"][cell["label"]]["selection"])
            names = set(selection.named(evaluation["checkpoints"]))
            diagnosed = evaluation["diagnostics"] or wants_diagnostics(evaluation["suite"])
            kept[cell["trial"][:16]] |= names | ({"last"} if diagnosed else set())
    return kept


def _cells(store: Store, study: str | None) -> dict[str, list[dict[str, Any]]]:
    manifests = {manifest["name"]: manifest for manifest in store.manifests()}
    if study is not None and study not in manifests:
        known = ", ".join(sorted(manifests)) or "none"
        raise UserError(f"store {store.uri} has no study {study!r}{nearest(study, manifests)} known: {known}")
    cells: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for manifest in manifests.values() if study is None else [manifests[study]]:
        for cell in manifest["cells"]:
            if cell["trial"]:
                cells[cell["trial"][:16]].append(cell)
    return cells


def _set_aside(store: Store, place: str) -> None:
    """The failure stays on record beside the trial, but no longer as its outcome."""
    earlier = sum(path.startswith(f"{place}/failed-") for path in store.list(place))
    store.write(f"{place}/failed-{earlier + 1}.json", store.read(f"{place}/{RECORD}"))
    store.delete(f"{place}/{RECORD}")
    store.delete(f"{place}/{ATTENTION}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
