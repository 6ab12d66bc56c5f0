"""Runs of a study without Ray: one piece after the other in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from sweep.errors import SweepEnded
from sweep.studies.model import Study
from sweep.work.failures import failure_of
from sweep.work.item import Item
from sweep.work.pieces import Metrics, Piece, Setting
from sweep.work.queue import Queue
from sweep.work.trainable import trainable
from sweep.work.worker import last_lines

IDLE_SECONDS = 0.05

Run = Callable[[dict[str, object], Setting, Callable[[Metrics], None]], Metrics]


class Stopped(BaseException):
    """Raised at a piece's next report after the user has asked to stop."""


def run_here(
    queue: Queue,
    setting: Setting,
    retries: int,
    stopping: Callable[[], bool] = lambda: False,
    run: Run = trainable,
) -> Iterator[float]:
    """Run all remaining pieces of a study. Yield the seconds of each.

    A fault of this machine ends the sweep, because there is no other machine to try.
    """
    while not queue.complete and queue.may_start() and not stopping():
        item = queue.next()
        if item is None:
            time.sleep(IDLE_SECONDS)  # another driver is working on the remaining pieces
            continue
        started = time.monotonic()
        queue.begin(item)
        more = {
            "attempt": item.attempt,
            "resources": {"cpu": _cpus(queue.study, item.piece)},  # results on a CPU depend on the number of threads
            "hold_seconds": 0.0,  # no other piece would be sent to this machine
        }
        try:
            metrics = run(item.piece.tune_config(queue.study.name) | more, setting, _hear(item, stopping))
        except Stopped:
            queue.again(item)
            return
        except Exception as error:
            failure = failure_of(error)
            if failure.kind in ("machine", "store"):
                queue.again(item)
                raise
            item.failures += 1
            item.trouble = failure.reason
            if failure.kind in ("loss", "memory") or item.failures > retries:
                queue.gave_up(item, failure.reason, last_lines(queue.store, item.piece.trial))
            else:
                queue.again(item)
        else:
            _follow(queue, item, metrics)
        yield time.monotonic() - started


def _cpus(study: Study, piece: Piece) -> float:
    """Return the cores of a piece: those set for attacks, else for its column, else for the study."""
    column = study.methods[study.columns().get(piece.label, piece.label)].resources
    shares = [column, study.resources]
    if piece.stage not in ("search", "train"):
        shares.insert(0, study.resources.evaluation)
    return next((share.cpus for share in shares if share is not None and share.cpus is not None), 1.0)


def _hear(item: Item, stopping: Callable[[], bool]) -> Callable[[Metrics], None]:
    def hear(metrics: Metrics) -> None:
        if stopping():
            raise Stopped
        for row in (*metrics.get("earlier", ()), metrics):
            if "epoch" in row:
                item.reached(row["epoch"])

    return hear


def _follow(queue: Queue, item: Item, metrics: Metrics) -> None:
    match metrics["state"]:
        case "taken":
            queue.refused(item)
        case "shared":
            queue.shared(item)
        case "held" | "elsewhere":
            queue.again(item)
            raise SweepEnded(f"this machine cannot work: {metrics['fault']}; finished work is in the store")
        case _:
            queue.finished(item, metrics)
