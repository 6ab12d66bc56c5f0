"""The campaign as a command: `python -m tests.chaos --minutes 30 --seed 1`, or `--repeat PART:CASE` for one case."""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import sys
import tempfile
import time
import traceback
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
# Of the time. Ray has all of it beside the others: it takes a minute for what the loop does in one second, and most of
# that minute it waits.
SHARES = {
    "kills": 0.38,
    "damages": 0.3,
    "bits": 0.05,
    "flips": 0.06,
    "drivers": 0.07,
    "machine": 0.07,
    "s3": 0.07,
}
BESIDE = "ray"
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
            whole = float("inf") if arguments.cases else 60 * arguments.minutes
            beside = None
            if BESIDE in arguments.parts.split(","):
                beside = Beside(BESIDE, reference, arguments.seed, whole, arguments.cases)
            parts = [part for part in arguments.parts.split(",") if part != BESIDE]
            total = sum(SHARES[part] for part in parts)
            for part in parts:
                seconds = whole * SHARES[part] / total
                campaign(tally, part, reference, arguments.seed, seconds, arguments.lanes, arguments.cases)
            if beside is not None:
                tally.results += beside.end()
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
    started = time.monotonic()
    count = len(tally.results)
    with ProcessPoolExecutor(lanes, mp_context=get_context("fork"), initializer=die_with_parent) as pool:
        running: dict[Future[Result], str] = {}
        while True:
            while len(running) < lanes and time.monotonic() - started < seconds:
                case = next(waiting, None)
                if case is None:
                    break
                running[pool.submit(PARTS[part].perform, case, reference)] = case
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                _note(tally, _result(future, part, running.pop(future)))
    made = tally.results[count:]
    struck = sum(one.counts["kills"] + one.counts["damages"] + one.counts["faults"] for one in made)
    minutes = (time.monotonic() - started) / 60
    print(
        f"{part}: {len(made)} cases, {struck} strikes in {minutes:.1f} min ({struck / minutes:.0f} a minute)",
        flush=True,
    )


def _result(future: Future[Result], part: str, case: str) -> Result:
    """One case that cannot be judged does not end the campaign."""
    try:
        return future.result()
    except Exception as fault:
        result = Result(part, case)
        result.bad("lost", f"could not be judged: {fault!r}")
        return result


class Beside:
    """A part in a process of its own, one case at a time, while the others go on."""

    def __init__(self, part: str, reference: Reference, seed: int, seconds: float, most: int | None) -> None:
        self.results = reference.folder / f"{part}.results"
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                die_with_parent()
                tally = Tally()
                campaign(tally, part, reference, seed, seconds, 1, most)
                self.results.write_bytes(pickle.dumps(tally.results))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)

    def end(self) -> list[Result]:
        _, status = os.waitpid(self.pid, 0)
        if status:
            raise RuntimeError("the part beside the others died; it said why above")
        results: list[Result] = pickle.loads(self.results.read_bytes())
        return results


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
    parser.add_argument("--lanes", type=int, default=1 + (os.cpu_count() or 1), help="cases at once, Ray's one aside")
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
