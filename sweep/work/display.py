"""What a sweep is doing, for people: a live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from sweep.work.ready import Assigned
from sweep.work.summary import duration
from sweep.work.tasks import STAGES
from sweep.work.work import Work

REFRESH_SECONDS = 0.5
LINE_SECONDS = 15.0


class Display:
    """Shows the state of the work; `update` is cheap and may be called at any rate."""

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

    def update(self, work: Work, bad_nodes: Mapping[str, str] = MappingProxyType({})) -> None:
        now = time.monotonic()
        for host in bad_nodes.keys() - self._bad:
            self.say(f"node {host} gets no more work: {bad_nodes[host]}")
        self._bad = set(bad_nodes)
        self._say_news(work)
        if not self.shown or now < self._next:
            return
        if self._live is not None:
            self._next = now + REFRESH_SECONDS
            self._live.update(self._table(work))
            return
        self._next = now + LINE_SECONDS
        line = self.line(work)
        if line != self._last:
            self.say(f"[{duration(now - self.started):>8}] {line}")
            self._last = line

    def _say_news(self, work: Work) -> None:
        """What must not scroll away with the view: another attempt, a training that learned nothing."""
        attempts = work.study.resources.retries + 1
        news = [
            f"{one.task.title}: attempt {one.attempt} of {attempts}: {one.trouble}"
            for one in work.running
            if one.attempt > 1
        ]
        news += [
            f"{title}: ended near chance; its recipe may not fit (learning rate, radius)" for title in work.near_chance
        ]
        for text in news:
            if text not in self._said:
                self._said.add(text)
                self.say(text)

    def line(self, work: Work) -> str:
        stages = [
            f"{stage} {work.done[stage]} done, {_running(work, stage)} running"
            for stage in STAGES
            if work.done[stage] or _running(work, stage)
        ]
        parts = [*stages, f"{len(work.failed)} failed"]
        if work.near_chance:
            parts.append(f"{len(work.near_chance)} near chance")
        if work.best:
            label = max(work.best, key=lambda name: work.best[name])
            parts.append(f"best {label} {work.best[label]:.1%}")
        parts.append(f"left {_time_left(work)}{_waits(work)}")
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

    def _table(self, work: Work) -> Any:
        table = Table(title=f"{self.title}  {duration(time.monotonic() - self.started)}", title_justify="left")
        for column in ("stage", "done", "running", "waiting", "now"):
            table.add_column(column)
        for stage in STAGES:
            now = [_now(one) for one in work.running if one.task.stage == stage and one.started]
            shown = ", ".join(now[:4]) + (f" and {len(now) - 4} more" if len(now) > 4 else "")
            waiting = work.waiting(stage)
            if not (now or waiting or work.done[stage]):
                continue
            table.add_row(stage, str(work.done[stage]), str(len(now)), str(waiting), shown)
        best = ", ".join(
            f"{label} {value:.1%}" for label, value in sorted(work.best.items(), key=lambda one: -one[1])[:3]
        )
        chance = f"{len(work.near_chance)} near chance; " if work.near_chance else ""
        table.caption = (
            f"{len(work.failed)} failed; {chance}best: {best or 'none yet'}; left {_time_left(work)}{_waits(work)}"
        )
        return table


def _now(assigned: Assigned) -> str:
    again = f" (attempt {assigned.attempt})" if assigned.attempt > 1 else ""
    return assigned.task.title + again + (f" {assigned.share:.0%}" if assigned.share else "")


def _time_left(work: Work) -> str:
    seconds = work.seconds_left()
    return "unknown" if seconds is None else f"about {duration(seconds)}"


def _waits(work: Work) -> str:
    others = work.waits_for()
    return f"; waiting for {', '.join(others)}, which has the rest of this study" if others else ""


def _running(work: Work, stage: str) -> int:
    return sum(one.task.stage == stage and one.started for one in work.running)
