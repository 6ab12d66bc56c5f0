"""`sweep merge`: results of several stores in one. All is compared before anything is written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from sweep import listing
from sweep.errors import UserError
from sweep.store.base import ATTENTION, FORMAT, RECORD, FolderStore, Store, open_store
from sweep.store.encoding import BrokenRecord
from sweep.store.manifests import agree, united
from sweep.upkeep import existing

SHOWN = 20


def merge(store_uri: str, sources: list[str], *, dry_run: bool = False) -> int:
    """Copy what the target lacks; returns how many records came. Conflicts are one UserError that names both sides."""
    target = open_store(store_uri)
    stores = [existing(source) for source in sources]
    for store in stores:
        if _place(store) == _place(target):
            raise UserError(f"store {store.uri} cannot be merged into itself")
    holder: dict[str, tuple[Store, dict[str, Any]]] = {path: (target, record) for path, record in _records(target)}
    faults: list[str] = []
    moves: dict[str, Store] = {}
    for store in stores:
        for path, record in _records(store):
            if path not in holder:
                holder[path], moves[path] = (store, record), store
                continue
            other, known = holder[path]
            verdict = _compare(known, record)
            if verdict == "theirs":
                holder[path], moves[path] = (store, record), store
            elif verdict == "both":
                holder[path], moves[path] = (store, _joined(known, record)), store
            elif verdict != "same":
                faults.append(f"{path}: {verdict}\n    {other.uri}\n    {store.uri}")
    if faults:
        more = [f"  … and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
        lines = [f"  {fault}" for fault in faults[:SHOWN]]
        raise UserError("\n".join(["nothing was merged; the stores contradict each other:", *lines, *more]))
    for path, store in moves.items() if not dry_run else ():
        _copy(store, target, path, holder[path][1])
    verb = "would merge" if dry_run else "merged"
    total = listing.count(len(moves), "record")
    sys.stdout.write(f"{verb} {total} from {listing.count(len(stores), 'store')} into {target.uri}\n")
    return len(moves)


def _records(store: Store) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that is an outcome: evaluations and diagnostics before trials, manifests last."""
    for folder in ("evaluations", "diagnostics", "searches", "trials", "studies"):
        for path in store.list(folder):
            if not _is_outcome(path):
                continue
            try:
                record = store.read_json(path)
            except BrokenRecord as fault:
                raise UserError(f"nothing was merged; {store.uri}: {fault}") from None
            if record.get("format", FORMAT) > FORMAT:
                raise UserError(f"{store.uri}/{path} was written by a newer version; update robustsweep first")
            yield path, record


def _is_outcome(path: str) -> bool:
    parts = path.split("/")
    if parts[0] in ("trials", "searches"):
        return parts[-1] == RECORD or (len(parts) == 4 and parts[2] == "candidates")
    depth = {"evaluations": 4, "diagnostics": 3, "studies": 2}[parts[0]]
    return len(parts) == depth and path.endswith(".json")


def _compare(known: dict[str, Any], new: dict[str, Any]) -> str:
    """'same', 'theirs' when the new one is further, 'both' to be joined, or what is wrong in words."""
    kind = known.get("kind")
    if kind != new.get("kind"):
        return f"one is a {kind} record, the other a {new.get('kind')} record"
    if kind in ("trial", "search"):
        unfinished = ("failed", "running")
        if known["status"] in unfinished:
            return "same" if new["status"] in unfinished else "theirs"
        if new["status"] in unfinished:
            return "same"
    if kind == "study":
        if not agree(known, new):
            return "the same name for two different studies; rename one of the files and run it again"
        trials = {(cell["label"], cell["seed"]): cell["trial"] for cell in known["cells"]}
        for cell in new["cells"]:
            before = trials.get((cell["label"], cell["seed"]))
            if before and cell["trial"] and before != cell["trial"]:
                return f"different trials under {cell['label']!r} seed {cell['seed']}; give one another label"
        return "same" if _joined(known, new) == known else "both"
    if _outcome(known) != _outcome(new):
        return f"two different outcomes of one {kind}"
    return "same"


def _joined(known: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """One manifest of two; where one side's search has not chosen yet, the other side's cells count."""
    undecided = (
        sum(cell["trial"] is None for cell in known["cells"]),
        sum(cell["trial"] is None for cell in new["cells"]),
    )
    return united(known, new) if undecided[0] > undecided[1] else united(new, known)


def _outcome(record: dict[str, Any]) -> Any:
    """What two computations of the same thing must agree on: not when, where or how long."""
    if record["kind"] == "trial":
        curve = [{key: value for key, value in row.items() if key != "seconds"} for row in record["curve"]]
        return record["config"], record["numerics"], record["status"], curve, record["checkpoints"]
    if record["kind"] == "search":
        return record["chosen"], [(one["trial"], one["state"], one["value"]) for one in record["candidates"]]
    besides = ("sha256", "versions", "commit", "device", "wall_seconds", "command")
    return {key: value for key, value in record.items() if key not in besides}


def _copy(source: Store, target: Store, path: str, record: dict[str, Any]) -> None:
    """What belongs to a record first, the record last: a merge that is cut off has merged nothing by halves."""
    if record["kind"] == "study":
        target.write_json(path, record)
        return
    folder = path.rpartition("/")[0]
    if record["kind"] in ("trial", "search"):
        for other in source.list(folder):
            if other.rpartition("/")[0] == folder and not other.endswith(
                (RECORD, ATTENTION, "resume.pt", "progress.json")
            ):
                _transfer(source, target, other)
    elif record["kind"] == "diagnostics":
        _transfer(source, target, f"{folder}/{record['arrays']}")
    if record["kind"] == "trial":
        target.write_trial_record(record)
    else:
        target.write_json(path, record)


def _transfer(source: Store, target: Store, path: str) -> None:
    local = source.local(path)
    if local is not None:
        target.push_file(local, path)
    else:
        target.write(path, source.read(path))


def _place(store: Store) -> str:
    return str(store.root.resolve()) if isinstance(store, FolderStore) else store.uri.rstrip("/")
