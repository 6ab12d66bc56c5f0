"""Whether a store that was disturbed and finished holds what an undisturbed one does."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sweep.store import layout
from sweep.store.base import Store
from sweep.store.folder import FolderStore
from sweep.store.lease_upkeep import held
from sweep.store.leases import load
from sweep.store.opening import open_store
from tests.chaos.children import Ended
from tests.chaos.study import Reference, outcome, tables
from tests.chaos.tally import Result

SHOWN = 1500


def judge_end(result: Result, what: str, ended: Ended, codes: tuple[int, ...] = (0,)) -> bool:
    """Notes a hang, a traceback and a wrong exit code; whether all was well."""
    tail = ended.output[-SHOWN:].strip()
    if ended.hung:
        result.bad("hangs", f"{what} did not end: {tail}")
    elif ended.has_traceback:
        result.bad("tracebacks", f"{what}: {tail}")
    elif ended.code not in codes:
        result.bad("lost", f"{what} ended with {ended.code}: {tail}")
    else:
        return True
    return False


def judge_store(
    result: Result,
    reference: Reference,
    store: str | Path,
    *,
    whole: bool = True,
    tidied: bool = True,
) -> None:
    """Equal results and byte-identical tables.

    Without `whole`, what no table of a finished study needs may be missing: records of pruned candidates, weights.

    `tidied` says that a run has begun or ended since the last process died: nothing of that one may be left.
    """
    found, expected = outcome(store, whole=whole), reference.outcome if whole else outcome(reference.store, whole=False)
    for path in sorted(expected.keys() - found.keys()):
        result.bad("lost", path)
    for path in sorted(found.keys() - expected.keys()):
        result.bad("differing", f"{path} is nobody's")
    for path in sorted(found.keys() & expected.keys()):
        if found[path] != expected[path]:
            result.bad("differing", f"{path}: {str(found[path])[:300]} instead of {str(expected[path])[:300]}")
    with tempfile.TemporaryDirectory(prefix="chaos-tables-") as out:
        made = tables(store, Path(out))
    for name, content in reference.tables.items():
        if made[name] != content:
            result.bad("differing", f"{name} is not byte-identical")
    opened = open_store(store)
    # Who died between making a lease and filling it, or whose lease was damaged, says nothing of itself: it is waited
    # for, not judged.
    holders = {path: load(opened, path) for path in opened.paths(layout.LEASES)}
    unfilled = {path.rsplit(".", 2)[0] for path, holder in holders.items() if holder and not holder.host}
    leases = [name for name in held(opened) if f"{layout.LEASES}/{name}" not in unfilled]
    if leases:
        result.bad("lost", f"leases are held after the end: {', '.join(leases)}")
    left = [path for path in _left(opened) if path.rsplit(".", 2)[0] not in unfilled] if whole and tidied else []
    if left:
        result.bad("lost", f"the last run left what no process can need: {', '.join(left)}")


def _left(store: Store) -> list[str]:
    """What the processes that died had begun."""
    found = store.paths(layout.LEASES)
    found += [path for path in store.paths(layout.TRIALS) if path.endswith((layout.RESUME, layout.PROGRESS))]
    found += [path for path in store.paths(layout.EVALUATIONS) if layout.kind_at(path) == "shard"]
    if isinstance(store, FolderStore):
        found += [str(file) for file in store.dead_temporary_files()]
    return found
