"""Kills at every step by which a store changes, without Ray: one store dies many times until a run of it finishes.

The first life ends at a step that the case names; so each window is hit on purpose. Every later life ends a few steps
on, or at a random moment, so that a store is resumed from what many kills left, and one whole run is paid once.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sweep.store import leases
from tests.chaos import loop
from tests.chaos.children import Child, Ended
from tests.chaos.comparison import judge_end, judge_store
from tests.chaos.primitives import AFTER, BEFORE, Countdown
from tests.chaos.study import Reference, final_records
from tests.chaos.tally import Result

PART = "kills"
UNFILLED_SECONDS = 0.5  # here nobody is slow to fill a lease that it has made: the next run need not wait for it
MOST_LIVES = 40  # the last of them is left alone
STRIDE = 90  # steps that a later life may take at most
MOMENTS = 0.2  # of the later kills come by the clock, wherever the run and its worker then are
FORKED = 0.25  # of the cases: a process for each task costs twice as much as the task


def cases(reference: Reference, seed: int) -> Iterator[str]:
    """Every step once before and once after it, in a random order; then for ever."""
    chance = random.Random(seed)
    steps = [(step, side) for step in range(1, reference.primitives + 1) for side in (BEFORE, AFTER)]
    while True:
        chance.shuffle(steps)
        for step, side in steps:
            workers = "forked" if chance.random() < FORKED else "one"
            yield f"{step}-{side}-{chance.randrange(1_000_000)}-{workers}"


def perform(case: str, reference: Reference) -> Result:
    step, side, seed, workers = case.split("-")
    result, chance = Result(PART, case), random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="chaos-kills-", dir=reference.folder.parent))
    store = folder / "store"
    try:
        complete: dict[str, int] = {}
        at, where, moment = int(step), side, 0.0
        for life in range(1, MOST_LIVES + 1):
            last = life == MOST_LIVES
            countdown = Countdown(store, 0 if last else at, where)
            ended = _live(reference, store, countdown, 0.0 if last else moment, forked=workers == "forked")
            # Of the run, or of a worker whose driver goes on.
            result.counts["kills"] += 0 < countdown.at <= countdown.count or ended.killed
            if not ended.killed and not judge_end(result, f"life {life}", ended):
                return result
            _judge_doubled(result, store, complete)
            if ended.code == 0:
                break
            by_clock = chance.random() < MOMENTS
            at, where = 0 if by_clock else chance.randint(1, STRIDE), chance.choice((BEFORE, AFTER))
            moment = chance.uniform(0.01, reference.seconds / 3) if by_clock else 0.0
        judge_store(result, reference, store)
    finally:
        if not result.faults:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            result.notes.append(f"kept: {folder}")
    return result


def _live(reference: Reference, store: Path, countdown: Countdown, moment: float, *, forked: bool) -> Ended:
    """A run that ends at the countdown's step, after `moment` seconds together with its worker, or by itself."""
    child = Child(partial(_run, reference, store, countdown, forked))
    if moment:
        time.sleep(moment)
        child.kill()
    return child.end()


def _run(reference: Reference, store: Path, countdown: Countdown, forked: bool) -> None:
    leases.UNFILLED_SECONDS = UNFILLED_SECONDS
    countdown.install()
    loop.run(reference.study, store, reference.folder, forked=forked)


def _judge_doubled(result: Result, store: Path, complete: dict[str, int]) -> None:
    """A record that a life left complete is written by no later one; `complete` takes in those that are new."""
    now = final_records(store) if store.exists() else {}
    for path, inode in now.items():
        if complete.setdefault(path, inode) != inode:
            result.bad("doubled", f"{path} was complete and was written again")
