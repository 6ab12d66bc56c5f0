"""Kills at every step by which a store changes, without Ray: run k dies at step k, the next dies or finishes."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sweep.store import holders
from tests.chaos import loop
from tests.chaos.children import in_child
from tests.chaos.comparison import judge_end, judge_store
from tests.chaos.primitives import AFTER, BEFORE, Countdown
from tests.chaos.study import Reference, final_records
from tests.chaos.tally import Result

PART = "kills"
UNFILLED_SECONDS = 0.5  # here nobody is slow to fill a lease that it has made: the next run need not wait for it


def cases(reference: Reference, seed: int) -> Iterator[str]:
    """Every step once before and once after it, in a random order, each followed by a second kill; then for ever."""
    chance = random.Random(seed)
    steps = [(step, side) for step in range(1, reference.primitives + 1) for side in (BEFORE, AFTER)]
    while True:
        chance.shuffle(steps)
        for step, side in steps:
            again = chance.randint(1, reference.primitives)
            workers = chance.choice(("one", "forked"))
            yield f"{step}-{side}-{again}-{chance.choice((BEFORE, AFTER))}-{workers}"


def perform(case: str, reference: Reference) -> Result:
    step, side, again, other_side, workers = case.split("-")
    result = Result(PART, case)
    folder = Path(tempfile.mkdtemp(prefix="chaos-kills-", dir=reference.folder.parent))
    store = folder / "store"

    def run(countdown: Countdown) -> None:
        holders.UNFILLED_SECONDS = UNFILLED_SECONDS
        countdown.install()
        loop.run(reference.study, store, reference.folder, forked=workers == "forked")

    try:
        before: dict[str, int] = {}
        for number, (at, where) in enumerate(((int(step), side), (int(again), other_side), (0, BEFORE))):
            countdown = Countdown(store, at, where)
            ended = in_child(partial(run, countdown))
            result.counts["kills"] += 0 < at <= countdown.count  # of the run, or of a worker whose driver goes on
            if not ended.killed and not judge_end(result, f"run {number + 1}", ended):
                return result
            if number < 2:
                before |= final_records(store) if store.exists() else {}
        judge_store(result, reference, store, before)
    finally:
        if not result.faults:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            result.notes.append(f"kept: {folder}")
    return result
