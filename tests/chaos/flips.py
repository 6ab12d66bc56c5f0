"""Single flipped bits in every kind of file: none is used silently, nothing falls over it, and the next run heals it.

A case flips one bit of one file of each kind. Each is first read alone, by the code that reads such files; then status,
reports and a run meet all of them together, with `verify-store --repair` before every second run.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sweep.errors import UserError
from sweep.store import leases
from sweep.store.opening import open_store
from tests import records as made
from tests.chaos import commands, loop
from tests.chaos.children import in_child
from tests.chaos.comparison import judge_end, judge_store
from tests.chaos.damages import CODES, FILES, KILLED
from tests.chaos.primitives import Countdown
from tests.chaos.readers import DECISION, UNCHECKED, reader_of
from tests.chaos.study import Reference
from tests.chaos.tally import Result
from trainers.loop.checkpoint import UnusableState

PART = "flips"
LEASE_SECONDS = 5.0  # a lease that now names another machine is waited for until it ends
FINISHED = tuple(kind for kind in FILES if kind not in (*KILLED, "log"))
ACTED_UPON = ("journal", "lease")  # to read one is to go on from it, which is left to the run


def cases(reference: Reference, seed: int) -> Iterator[str]:
    for number in itertools.count(seed * 10_000):
        yield f"finished-{number}"
        yield f"killed-{number}"


def perform(case: str, reference: Reference) -> Result:
    state, number = case.split("-")
    result, chance = Result(PART, case), random.Random(case)
    folder = Path(tempfile.mkdtemp(prefix="chaos-flips-", dir=reference.folder.parent))
    store = folder / "store"
    try:
        if state == "finished":
            shutil.copytree(reference.store, store)
            open_store(store).write_record(made.decision_record(study="chaos"))
            patterns = {kind: FILES[kind] for kind in FINISHED} | {"decision": DECISION}
        else:
            _killed_run(store, reference, chance)
            patterns = {kind: FILES[kind] for kind in KILLED}
        for kind, pattern in patterns.items():
            files = sorted(path for path in store.glob(pattern) if path.is_file() and path.stat().st_size)
            if files:
                _flip_one(result, reference, store, kind, chance.choice(files), chance)
        _judge_commands(result, reference, folder, repair=int(number) % 2 == 1 and state == "finished")
    finally:
        if result.faults:
            result.notes.append(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return result


def _flip_one(result: Result, reference: Reference, store: Path, kind: str, file: Path, chance: random.Random) -> None:
    path = file.relative_to(store).as_posix()
    # What describes weights and arrays may itself be flipped by now: the undisturbed store's is whole.
    read = partial(reader_of(kind, reference), open_store(store), path, open_store(reference.store))
    alone = kind not in ACTED_UPON
    before = read() if alone else None
    content = bytearray(file.read_bytes())
    place, bit = chance.randrange(len(content)), chance.randrange(8)
    content[place] ^= 1 << bit
    file.write_bytes(content)
    result.flipped(kind)
    result.notes.append(f"{path} byte {place} bit {bit}")
    try:
        after = read() if alone else None
    except (UserError, UnusableState):
        return
    except Exception as fault:
        result.bad("tracebacks", f"{path}: {type(fault).__name__}: {fault}")
        return
    if after != before and kind not in UNCHECKED:
        result.bad("silent", f"{path} is read as {str(after)[:200]}")


def _killed_run(store: Path, reference: Reference, chance: random.Random) -> None:
    """A run that dies where each kind of file may be left: early for states, late for shards."""

    def run(step: int) -> None:
        Countdown(store, step).install()
        leases.LEASE_SECONDS = LEASE_SECONDS
        loop.run(reference.study, store, reference.folder)

    wanted = FILES[chance.choice(("resume", "shard"))]
    for _ in range(10):
        low, high = (0.65, 0.95) if "shard" in wanted else (0.1, 0.6)
        in_child(partial(run, int(reference.primitives * chance.uniform(low, high))))
        if any(store.glob(wanted)):
            return
        shutil.rmtree(store, ignore_errors=True)


def _judge_commands(result: Result, reference: Reference, folder: Path, *, repair: bool) -> None:
    run = f"run --study {reference.study} --data-dir {reference.folder} --store store --out out --yes --logger none"
    for words in ("status --store store", "report --store store --out seen --no-figures"):
        judge_end(result, words.split()[0], commands.call(words.split(), folder), CODES)
    if repair:
        judge_end(result, "verify-store", commands.call("verify-store --store store --repair".split(), folder), CODES)
    ended = commands.call(run.split(), folder, prepare=_prepare)
    if judge_end(result, "the next run", ended):
        # Weights that no evaluation needs any more are looked at by verify-store alone.
        judge_store(result, reference, folder / "store", whole=False)
        _judge_decision(result, folder / "store")


def _prepare() -> None:
    commands.without_figures()
    leases.UNFILLED_SECONDS = 0.5


def _judge_decision(result: Result, store: Path) -> None:
    """It is made from seeds that this study does not have: a broken one is set aside, and no other is there."""
    whole = made.decision_record(study="chaos")
    for file in store.glob(DECISION):
        if file.read_bytes() != whole.encoded():
            result.bad("silent", f"{file.relative_to(store)} is still there")
