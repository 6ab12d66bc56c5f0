"""Hundreds of single flipped bits in each kind of file, each read alone by the code that reads such files.

What is read must equal what was written, be refused, or count as absent; `flips` shows what the commands make of it.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from reports.store.freshness import write_note
from sweep.errors import UserError
from sweep.store import encoding
from sweep.store.opening import open_store
from sweep.store.usage import Budget
from tests import records as made
from tests.chaos import damages
from tests.chaos.children import in_child
from tests.chaos.comparison import judge_end
from tests.chaos.damages import FILES, killed_run
from tests.chaos.readers import DECISION, NOTE, ROWS, UNCHECKED, reader_of
from tests.chaos.study import TABLES, Reference, tables
from tests.chaos.tally import Result
from trainers.loop.checkpoint import UnusableState

PART = "bits"
FLIPS = 300  # of a case
PLACES = {
    **FILES,
    "decision": DECISION,
    "row": "rows/*/*.json",
    "transfer": "transfers/*/*.json",
    "usage": "usage/*/*.json",
    "rows": ROWS,
    "note": NOTE,
}
MARK = "flip "
SECONDS = 240.0


def cases(reference: Reference, seed: int) -> Iterator[str]:
    for number in itertools.count(seed * 1000):
        for kind in PLACES:
            yield f"{kind}-{number}"


def perform(case: str, reference: Reference) -> Result:
    kind, _ = case.split("-")
    result, chance = Result(PART, case), random.Random(case)
    folder = Path(tempfile.mkdtemp(prefix="chaos-bits-", dir=reference.folder.parent))
    store = folder / "store"
    try:
        _prepare(kind, store, reference, chance)
        ended = in_child(partial(_flip_many, kind, store, reference, chance), SECONDS)
        told = [line.removeprefix(MARK) for line in ended.output.splitlines() if line.startswith(MARK)]
        for place, bad, words in map(json.loads, told):
            result.flipped(kind)
            if bad:
                result.bad(bad, f"{place}: {words}")
        if len(told) < FLIPS:
            judge_end(result, f"reading what follows {told[-1] if told else 'nothing'}", ended)
            result.bad("lost", f"only {len(told)} of {FLIPS} flips were made: {ended.output[-500:]}")
    finally:
        if result.faults:
            result.notes.append(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return result


def spoil_checks() -> None:
    """From now on every record passes for intact: a fault that the campaign must find."""
    encoding.is_intact = lambda data: True


def _prepare(kind: str, store: Path, reference: Reference, chance: random.Random) -> None:
    """A store that has such files."""
    if kind in damages.KILLED:
        killed_run(store, reference, chance, FILES[kind])
        return
    shutil.copytree(reference.store, store)
    opened = open_store(store)
    opened.write_record(made.decision_record(study="chaos"))
    opened.write_record(made.row_record(study="chaos"))
    opened.write_record(made.transfer_record())
    Budget(opened, "chaos", 2.0, lambda: 1234.5).write()
    if kind == "rows":
        tables(reference.store, store / "out")
    if kind == "note":
        tables(store, store / "out")
        (store / NOTE).parent.mkdir()
        write_note(store / "out", "source", [store / "out" / name for name in TABLES])


def _flip_many(kind: str, folder: Path, reference: Reference, chance: random.Random) -> None:
    """Prints a line for each: the place, what is bad about it (nothing, most often), and in what words."""
    store, whole, read = open_store(folder), open_store(reference.store), reader_of(kind, reference)
    files = sorted(path for path in folder.glob(PLACES[kind]) if path.is_file() and path.stat().st_size)
    for _ in range(FLIPS):
        file = chance.choice(files)
        path, content = file.relative_to(folder).as_posix(), file.read_bytes()
        before = read(store, path, whole)
        flipped, place, bit = bytearray(content), chance.randrange(len(content)), chance.randrange(8)
        flipped[place] ^= 1 << bit
        file.write_bytes(flipped)
        bad = words = ""
        try:
            after = read(store, path, whole)
            if after not in (before, None) and kind not in UNCHECKED:
                bad, words = "silent", f"read as {str(after)[:200]}"
        except (UserError, UnusableState):
            pass
        except Exception as fault:
            bad, words = "tracebacks", f"{type(fault).__name__}: {fault}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        print(MARK + json.dumps([f"{path} byte {place} bit {bit}", bad, words]), flush=True)
