"""Garbage collection: files of a store that no table, resume or evaluation needs."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from sweep.errors import UserError
from sweep.store import layout
from sweep.store.base import Entry, Store
from sweep.store.encoding import BrokenRecord
from sweep.store.folder import FolderStore, link_refusal
from sweep.store.lease_upkeep import abandoned, delete_abandoned, held
from sweep.store.leases import take
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.manifest import Manifest
from sweep.store.records.search import CandidateRecord
from sweep.store.records.trial import TrialRecord
from sweep.store.replaced import REPLACED, replaced_models
from trainers.attacks.scoring.suites import wants_diagnostics
from trainers.config import CHECKPOINTS

# Younger files may be in use by a writer that has just started.
LEFTOVER_SECONDS = 3600.0
# Optuna holds a journal's lock for milliseconds and treats a lock older than 30 s as that of a dead writer.
LOCK_SECONDS = 60.0
LEASES = "leases that nobody holds"
PRUNED, UNSELECTED = "files of pruned candidates", "checkpoints that no study selects"


def leftovers(
    store: Store, *, all_checkpoints: bool = False, broken: bool = False, young: list[Entry] | None = None
) -> dict[str, list[Entry]]:
    """Return unneeded files, grouped by reason.

    With `all_checkpoints` no checkpoint counts as unneeded. With `broken` files that were set aside are included.
    Weights are written before their record, and the record before the manifest that selects them. Files that are
    spared only because they are recent are therefore added to `young`.
    Reasons that begin with REPLACED hold models that a study used to select.
    """
    old = time.time() - LEFTOVER_SECONDS
    found: dict[str, list[Entry]] = defaultdict(list)
    spared = [] if young is None else young
    for reason, entry in _of_trials(store, all_checkpoints):
        is_young = _may_be_wanted(reason) and entry.modified >= old
        (spared if is_young else found[reason]).append(entry)
    found["shards of finished evaluations"] = _merged_shards(store, old)
    found["counterexamples that no evaluation names"] = _unnamed_counterexamples(store, old)
    found[LEASES] = abandoned(store, old)
    if isinstance(store, FolderStore):
        found["files of writers that were killed"] = [
            entry for entry in _entries(store, store.temporary_files()) if entry.modified < old
        ]
        found["locks of search journals"] = _journal_locks(store)
    if broken:
        found["broken records that were set aside"] = [
            entry for entry in store.entries(layout.BROKEN) if layout.is_set_aside(entry.path)
        ]
    own = {reason: [entry for entry in entries if _is_own(store, entry.path)] for reason, entries in found.items()}
    return {reason: entries for reason, entries in own.items() if entries}


def left_alone(store: Store, broken: bool = False) -> list[str]:
    """Return messages about what is never deleted: linked folders, and files with names unknown to this program."""
    lines = links_left_alone(store)
    for folder, is_ours in ((layout.LEASES, layout.is_lease), (layout.BROKEN, layout.is_set_aside)):
        paths = store.paths(folder) if folder == layout.LEASES or broken else []
        strangers = [path for path in paths if not is_ours(path) and _is_own(store, path)]
        if strangers:
            more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
            lines.append(f"left alone: {strangers[0]}{more}: no file of a store has this name")
    return lines


def links_left_alone(store: Store) -> list[str]:
    links = store.linked_folders() if isinstance(store, FolderStore) else {}
    return [f"left alone: {folder} is a link to {target}" for folder, target in links.items()]


def refuse_links(store: Store) -> None:
    """Raise UserError if a folder of the store is a link: trials would fail when they write their files."""
    links = store.linked_folders() if isinstance(store, FolderStore) else {}
    for folder, target in links.items():
        if folder.split("/")[0] != layout.BROKEN:
            raise UserError(link_refusal(store.uri, folder, target))


def merges(store: Store) -> list[str]:
    """Return the processes that are merging other stores into this one."""
    return [holder.title for name, holder in held(store).items() if layout.is_merge(name)]


def _may_be_wanted(reason: str) -> bool:
    """Return whether a manifest that is yet to be written could select such files."""
    return reason in (PRUNED, UNSELECTED) or reason.startswith(REPLACED)


def _is_own(store: Store, path: str) -> bool:
    return not isinstance(store, FolderStore) or store.link_above(path) is None


def delete(store: Store, found: dict[str, list[Entry]]) -> None:
    """Delete leftovers. Keep checkpoints if a merge has started since they were listed, as it may need them."""
    for reason, entries in found.items():
        if _may_be_wanted(reason) and merges(store):
            continue
        if reason == LEASES:
            delete_abandoned(store, [entry.path for entry in entries], time.time() - LEFTOVER_SECONDS)
        else:
            for entry in entries:
                store.delete(entry.path)


def delete_dead(store: Store) -> None:
    """Delete what no process can need or write any more. Safe while other drivers work; called around every run."""
    delete_abandoned(store, [entry.path for entry in abandoned(store, 0.0) if _is_own(store, entry.path)], 0.0)
    for entry in _merged_shards(store, math.inf):
        if _is_own(store, entry.path):
            store.delete(entry.path)
    if isinstance(store, FolderStore):
        for file in store.dead_temporary_files():
            file.unlink(missing_ok=True)
    if not merges(store):
        _delete_ended_trainings(store)


def _delete_ended_trainings(store: Store) -> None:
    """Delete resume states of finished trainings, and all files of pruned candidates whose worker was killed."""
    files: dict[str, dict[str, str]] = defaultdict(dict)
    for entry in store.entries(layout.TRIALS):
        place, name = layout.in_trial(entry.path)
        if layout.is_trial_file(entry.path) and _is_own(store, entry.path):
            files[place][name] = entry.path
    pruned = {path.rpartition("/")[2].removesuffix(".json"): path for path in store.record_paths(CandidateRecord)}
    for place, paths in files.items():
        dead: list[str] = []
        if layout.RECORD not in paths:
            dead = [*paths.values()] if place in pruned else []
        elif not paths.keys().isdisjoint({layout.RESUME, layout.PROGRESS}):
            dead = [path for name, path in paths.items() if name in (layout.RESUME, layout.PROGRESS)]
        lease = take(store, layout.trial_lease(place)) if dead else None
        if lease is None:  # nothing to do, or another process is training it
            continue
        with lease:
            if _has_ended(store, place, pruned.get(place)):
                for path in dead:
                    store.delete(path)


def _has_ended(store: Store, place: str, candidate: str | None) -> bool:
    record = store.usable(TrialRecord, layout.trial_record(place))
    if record is not None:
        return record.status in ("done", "collapsed")
    return candidate is not None and store.usable(CandidateRecord, candidate) is not None


def _of_trials(store: Store, all_checkpoints: bool) -> Iterator[tuple[str, Entry]]:
    states, kept, leases = store.trial_states(), _kept_checkpoints(store), held(store)
    if any(map(layout.is_merge, leases)):
        return
    candidates = store.records(CandidateRecord, store.record_paths(CandidateRecord), skip=lambda _: None)
    pruned = {layout.short(candidate.trial) for candidate in candidates}
    replaced = replaced_models(store, store.manifests().values(), kept)
    for entry in store.entries(layout.TRIALS):
        place, name = layout.in_trial(entry.path)
        if layout.trial_lease(place) in leases or not layout.is_trial_file(entry.path):
            continue
        if place in pruned and place not in states:
            yield PRUNED, entry
        elif states.get(place) in ("done", "collapsed"):
            checkpoint = name.removesuffix(layout.WEIGHTS)
            if name in (layout.RESUME, layout.PROGRESS):
                yield "resume states of finished trials", entry
            elif name != checkpoint and checkpoint not in kept[place] and not all_checkpoints:
                yield replaced.get(place, {}).get(checkpoint, UNSELECTED), entry


def _kept_checkpoints(store: Store) -> dict[str, set[str]]:
    """Return the selected checkpoints. Raise if a manifest cannot be read, since its checkpoints would be deleted."""
    if isinstance(store, FolderStore):
        for place in (store.root / layout.STUDIES).glob("*.json"):
            if not place.is_file():  # record listings skip it, and its checkpoints would look unneeded
                raise BrokenRecord(layout.manifest(place.stem), "it is no file")
    return selected_checkpoints(store.manifests().values())


def selected_checkpoints(manifests: Iterable[Manifest]) -> dict[str, set[str]]:
    """Return the checkpoints that some study evaluates or needs for its diagnostics, by trial folder name."""
    kept: dict[str, set[str]] = defaultdict(set)
    for manifest in manifests:
        evaluation = manifest.evaluation
        diagnosed = (
            {"last", *evaluation.diagnosed} if evaluation.diagnostics or wants_diagnostics(evaluation.suite) else set()
        )
        for cell in manifest.cells:
            if cell.trial is not None:
                known = cell.label in manifest.config_by_label  # for unknown labels keep every checkpoint
                names = manifest.checkpoints(cell.label) if known else (*CHECKPOINTS, *evaluation.checkpoints)
                kept[layout.short(cell.trial)] |= {*names, *diagnosed}
    return kept


def _merged_shards(store: Store, old: float) -> list[Entry]:
    shards: dict[str, list[Entry]] = defaultdict(list)
    for entry in store.entries(layout.EVALUATIONS):
        if layout.kind_at(entry.path) == "shard" and entry.modified < old:
            shards[layout.record_of_shard(entry.path)].append(entry)
    records = store.records(EvaluationRecord, list(shards), skip=lambda _: None)
    return [entry for record in records for entry in shards[record.path]]


def _unnamed_counterexamples(store: Store, old: float) -> list[Entry]:
    """Return counterexamples that no evaluation refers to, because it was set aside or recomputed without them.

    Files newer than `old` are skipped: they may still be in the process of being written.
    """
    found = {
        layout.evaluation_of_counterexamples(entry.path): entry
        for entry in store.entries(layout.EVALUATIONS)
        if layout.is_counterexamples(entry.path) and entry.modified < old
    }
    unreadable: list[str] = []
    records = store.records(EvaluationRecord, list(found), skip=lambda fault: unreadable.append(fault.path))
    named = {record.path for record in records if record.counterexamples is not None}
    return [entry for path, entry in found.items() if path not in named and path not in unreadable]


def _journal_locks(store: FolderStore) -> list[Entry]:
    """Return old locks (links or files) of search journals whose search no driver leads."""
    leases, old = held(store), time.time() - LOCK_SECONDS
    locks = store.root.glob(f"{layout.search_journal('*')}.lock*")
    free = [
        lock
        for lock in locks
        if layout.search_lease(lock.parent.name) not in leases
        and store.link_above(lock.relative_to(store.root).as_posix()) is None
    ]
    return [entry for entry in _entries(store, free) if entry.modified < old]


def _entries(store: FolderStore, files: list[Path]) -> Iterator[Entry]:
    for file in files:
        facts = file.lstat()
        yield Entry(file.relative_to(store.root).as_posix(), facts.st_size, facts.st_mtime)
