"""Two and three drivers on one store, undisturbed or with one of them killed: each cell is computed once."""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from sweep.evaluation.attack import Unsaved
from tests.chaos import loop
from tests.chaos.children import Child
from tests.chaos.comparison import judge_end, judge_store
from tests.chaos.primitives import AFTER, BEFORE, Countdown
from tests.chaos.study import Reference
from tests.chaos.tally import Result

PART = "drivers"


def cases(reference: Reference, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for number in itertools.count():
        drivers = 2 + number % 2
        step = 0 if number % 4 < 2 else chance.randint(1, reference.primitives // drivers)
        yield f"{drivers}-{step}-{chance.choice((BEFORE, AFTER))}"


def perform(case: str, reference: Reference) -> Result:
    count, step, side = case.split("-")
    result = Result(PART, case)
    folder = Path(tempfile.mkdtemp(prefix="chaos-drivers-", dir=reference.folder.parent))
    store = folder / "store"

    def run(countdown: Countdown) -> None:
        countdown.install()
        _note_batches(folder / "batches")
        loop.run(reference.study, store, reference.folder)

    try:
        countdowns = [Countdown(store, int(step) if number == 0 else 0, side) for number in range(int(count))]
        for number, child in enumerate([Child(partial(run, countdown)) for countdown in countdowns]):
            ended = child.end(180)
            if number == 0 and ended.killed:
                result.counts["kills"] += 1
            else:
                judge_end(result, f"driver {number + 1} of {count}", ended)
        if result.faults:
            return result
        killed = bool(result.counts["kills"])
        judge_store(result, reference, store, tidied=not killed)  # it may have died when the others had ended
        if killed and not result.faults:
            judge_end(result, "the same command", Child(partial(run, Countdown(store, 0, side))).end(180))
            judge_store(result, reference, store)
        if not killed:
            for log in sorted(store.glob("trials/*/log.txt")):
                starts = [line.split()[1] for line in log.read_text().splitlines() if " on " in line]
                if starts.count("train") + starts.count("search") != 1:
                    result.bad("doubled", f"{log.parent.name} was trained by several drivers: {starts}")
            batches = Counter((folder / "batches").read_text().splitlines())
            for batch in [batch for batch, times in batches.items() if times > 1]:
                result.bad("doubled", f"attacked by several drivers: {batch}")
    finally:
        if result.faults:
            result.notes.append(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return result


def _note_batches(file: Path) -> None:
    """For the rest of this process: note every batch of images that it has attacked."""
    add = Unsaved.add

    def noted(self: Unsaved, first: int, last: int, *more: Any) -> None:
        with file.open("a") as lines:
            lines.write(f"{self.evaluation.folder} {self.phase} images {first} to {last}\n")
        add(self, first, last, *more)

    Unsaved.add = noted  # type: ignore[method-assign]
