"""The campaign as a command: `python -m tests.chaos --minutes 30 --seed 1`, or `--repeat PART:CASE` for one case."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

# Before torch is loaded: children are forked, which threads would not survive.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from tests.chaos import bits, damages, drivers, flips, kills, loop, machine, ray_kills, s3_faults  # noqa: E402
from tests.chaos.children import die_with_parent  # noqa: E402
from tests.chaos.reference import make_reference  # noqa: E402
from tests.chaos.study import Reference  # noqa: E402
from tests.chaos.tally import Result, Tally  # noqa: E402

PARTS: dict[str, ModuleType] = {
    module.PART: module for module in (kills, damages, bits, flips, drivers, machine, s3_faults, ray_kills)
}
# Of the time; Ray takes half a minute for what the loop does in one second.
SHARES = {
    "kills": 0.4,
    "damages": 0.1,
    "bits": 0.1,
    "flips": 0.1,
    "drivers": 0.05,
    "machine": 0.05,
    "s3": 0.05,
    "ray": 0.15,
}

SLOW = ("s3", "ray")  # a line for each case


def main() -> None:
    arguments = _arguments()
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=arguments.folder or where))
    folder.chmod(0o755)
    tally = Tally()
    try:
        reference = make_reference(folder / "reference")
        print(f"undisturbed: {reference.seconds:.1f} s, {reference.primitives} steps of the store", flush=True)
        if arguments.repeat:
            if arguments.spoil:
                loop.spoil_results()
                bits.spoil_checks()
            for part, _, case in (words.partition(":") for words in arguments.repeat.split(",")):
                _note(tally, PARTS[part].perform(case, reference))
        else:
            parts = arguments.parts.split(",")
            total = sum(SHARES[part] for part in parts)
            for part in parts:
                seconds = 60 * arguments.minutes * SHARES[part] / total
                if arguments.cases:
                    seconds = float("inf")
                campaign(tally, part, reference, arguments.seed, seconds, arguments.lanes, arguments.cases)
        print(f"\nseed {arguments.seed}\n{tally.flips()}\n{tally.table()}", flush=True)
    finally:
        if not tally.failed:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if tally.failed else 0)


def campaign(
    tally: Tally, part: str, reference: Reference, seed: int, seconds: float, lanes: int, most: int | None = None
) -> None:
    """Cases of one part until the time is over, several at once."""
    waiting: Iterator[str] = islice(PARTS[part].cases(reference, seed), most)
    started, lanes = time.monotonic(), 1 if part == "ray" else lanes
    count = len(tally.results)
    with ProcessPoolExecutor(lanes, mp_context=get_context("fork"), initializer=die_with_parent) as pool:
        running: set[Future[Result]] = set()
        while True:
            while len(running) < lanes and time.monotonic() - started < seconds:
                case = next(waiting, None)
                if case is None:
                    break
                running.add(pool.submit(PARTS[part].perform, case, reference))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                _note(tally, future.result())
    made = tally.results[count:]
    struck = sum(one.counts["kills"] + one.counts["damages"] + one.counts["faults"] for one in made)
    minutes = (time.monotonic() - started) / 60
    print(
        f"{part}: {len(made)} cases, {struck} strikes in {minutes:.1f} min ({struck / minutes:.0f} a minute)",
        flush=True,
    )


def _note(tally: Tally, result: Result) -> None:
    tally.add(result)
    if result.part in SLOW:
        struck = ", ".join(f"{count} {name}" for name, count in result.counts.items() if name != "cases" and count)
        notes = "; ".join(["", *result.notes])
        print(f"{result.part}:{result.case}: {struck or 'nothing was struck'}{notes}", flush=True)
    if result.faults:
        words = "\n  ".join(fault[:1000] for fault in result.faults[:5])
        notes = "; ".join(result.notes)
        print(f"FAILED {result.part}:{result.case} ({notes})\n  {words}\n  repeat: {result.command}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--lanes", type=int, default=1 + (os.cpu_count() or 1), help="cases at once, Ray's aside")
    parser.add_argument("--folder", type=Path, help="where stores are made; default: memory, if there is any")
    parser.add_argument("--cases", type=int, help="this many of each part, however long they take")
    parser.add_argument("--spoil", action="store_true", help="turn verdicts round, check no sums: it must notice")
    parser.add_argument("--repeat", metavar="PART:CASE,…", help="cases again, as a failure prints them")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts.split(",") if part not in PARTS]
    if unknown:
        parser.error(f"--parts {unknown[0]}: must be among {', '.join(PARTS)}")
    return arguments


if __name__ == "__main__":
    main()
