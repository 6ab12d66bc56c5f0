"""The progress display of a sweep: a live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from sweep.work.item import Item
from sweep.work.pieces import STAGES
from sweep.work.queue import Queue
from sweep.work.summary import duration

REFRESH_SECONDS = 0.5
LINE_SECONDS = 15.0


class Display:
    """The display of a sweep's state. `update` is cheap and may be called at any rate."""

    def __init__(self, title: str, shown: bool = True) -> None:
        self.title, self.shown = title, shown
        self.started = time.monotonic()
        self._next = 0.0
        self._last = ""
        self._bad: set[str] = set()
        self._said: set[str] = set()
        self._live: Any = None
        if shown and sys.stderr.isatty():
            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.start()

    def update(self, queue: Queue, bad_nodes: Mapping[str, str] = MappingProxyType({})) -> None:
        now = time.monotonic()
        for host in bad_nodes.keys() - self._bad:
            self.say(f"node {host} gets no more work: {bad_nodes[host]}")
        self._bad = set(bad_nodes)
        self._say_news(queue)
        if not self.shown or now < self._next:
            return
        if self._live is not None:
            self._next = now + REFRESH_SECONDS
            self._live.update(self._table(queue))
            return
        self._next = now + LINE_SECONDS
        line = self.line(queue)
        if line != self._last:
            self.say(f"[{duration(now - self.started):>8}] {line}")
            self._last = line

    def _say_news(self, queue: Queue) -> None:
        """Print news that must not scroll away with the view: new attempts, and trainings that learned nothing."""
        attempts = queue.study.resources.retries + 1
        news = [
            f"{item.piece.title}: attempt {item.attempt} of {attempts}: {item.trouble}"
            for item in queue.running
            if item.attempt > 1
        ]
        news += [
            f"{title}: ended near chance; its recipe may not fit (learning rate, radius)" for title in queue.near_chance
        ]
        for text in news:
            if text not in self._said:
                self._said.add(text)
                self.say(text)

    def line(self, queue: Queue) -> str:
        stages = [
            f"{stage} {queue.done[stage]} done, {_running(queue, stage)} running"
            for stage in STAGES
            if queue.done[stage] or _running(queue, stage)
        ]
        parts = [*stages, f"{len(queue.failed)} failed"]
        if queue.near_chance:
            parts.append(f"{len(queue.near_chance)} near chance")
        if queue.best:
            label = max(queue.best, key=lambda name: queue.best[name])
            parts.append(f"best {label} {queue.best[label]:.1%}")
        parts.append(f"left {_time_left(queue)}{_waits(queue)}")
        return "; ".join(parts)

    def say(self, text: str) -> None:
        if not self.shown:
            return
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _table(self, queue: Queue) -> Any:
        table = Table(title=f"{self.title}  {duration(time.monotonic() - self.started)}", title_justify="left")
        for column in ("stage", "done", "running", "waiting", "now"):
            table.add_column(column)
        for stage in STAGES:
            now = [_now(item) for item in queue.running if item.piece.stage == stage]
            titles = ", ".join(now[:4]) + (f" and {len(now) - 4} more" if len(now) > 4 else "")
            waiting = queue.waiting(stage)
            if not (now or waiting or queue.done[stage]):
                continue
            table.add_row(stage, str(queue.done[stage]), str(len(now)), str(waiting), titles)
        best = ", ".join(
            f"{label} {value:.1%}" for label, value in sorted(queue.best.items(), key=lambda pair: -pair[1])[:3]
        )
        chance = f"{len(queue.near_chance)} near chance; " if queue.near_chance else ""
        table.caption = (
            f"{len(queue.failed)} failed; {chance}best: {best or 'none yet'}; left {_time_left(queue)}{_waits(queue)}"
        )
        return table


def _now(item: Item) -> str:
    again = f" (attempt {item.attempt})" if item.attempt > 1 else ""
    return item.piece.title + again + (f" {item.share:.0%}" if item.share else "")


def _time_left(queue: Queue) -> str:
    seconds = queue.seconds_left()
    return "unknown" if seconds is None else f"about {duration(seconds)}"


def _waits(queue: Queue) -> str:
    others = queue.waits_for()
    return f"; waiting for {', '.join(others)}, which has the rest of this study" if others else ""


def _running(queue: Queue, stage: str) -> int:
    return sum(item.piece.stage == stage for item in queue.running)
