"""What a sweep is doing, for people: a live view in a terminal, plain lines elsewhere, and a closing summary."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweep.work.tasks import Job
    from sweep.work.work import Work

REFRESH_SECONDS = 0.5
LINE_SECONDS = 15.0
NAMES = {"candidate": "search", "train": "train", "evaluate": "evaluate", "diagnose": "diagnose"}


@dataclass
class Summary:
    """How a run ended."""

    study: str
    complete: bool
    all_there: bool = False
    interrupted: bool = False
    done: dict[str, int] = field(default_factory=dict)
    failed: list[dict[str, Any]] = field(default_factory=list)
    left: int = 0
    seconds: float = 0.0
    device_hours: float = 0.0
    device_use: float | None = None
    budget_reached: bool = False
    written: list[Path] = field(default_factory=list)
    store: str = ""
    command: str = ""

    def text(self) -> str:
        lines = []
        if self.all_there:
            lines.append(f"{self.study}: all was there, nothing to compute")
        else:
            did = ", ".join(f"{self.done.get(kind, 0)} {noun}" for kind, noun in _DONE.items())
            use = f", devices {self.device_use:.0%} busy" if self.device_use is not None else ""
            lines.append(f"{self.study}: {did} in {duration(self.seconds)} ({self.device_hours:.2f} device-hours{use})")
        for failure in self.failed:
            lines += _failure(failure)
        if self.budget_reached:
            lines.append(f"the budget is used up; {self.left} pieces of work are left")
        elif self.interrupted:
            lines.append("stopped; everything finished is kept, and trials go on from their last epoch")
        elif not self.complete and not self.failed:
            lines.append(f"{self.left} pieces of work are left")
        if not self.complete and self.command:
            lines.append(f"to go on: {self.command}")
        lines.append(f"store: {self.store}")
        figures = [path for path in self.written if path.suffix in (".svg", ".png")]
        lines += [f"written: {path}" for path in self.written if path.parent.name != "plots"]
        if figures:
            lines.append(f"written: {figures[0].parent} ({len({path.stem for path in figures})} figures)")
        return "\n".join(lines)


_DONE = {"candidate": "candidates", "train": "trainings", "evaluate": "evaluation shards"}


def _failure(failure: dict[str, Any]) -> list[str]:
    if failure.get("stored"):
        return [f"failed before: {failure['title']} (trial {failure['trial'][:16]}); run again with --retry-failed"]
    lines = [f"failed: {failure['title']}: {failure['reason']}"]
    lines += [f"    {line}" for line in failure.get("log", [])[-8:]]
    if failure.get("command"):
        lines.append(f"    run it again: {failure['command']}")
    return lines


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


class Display:
    """Shows the state of the work; `update` is cheap and may be called at any rate."""

    def __init__(self, title: str, shown: bool = True) -> None:
        self.title, self.shown = title, shown
        self.started = time.monotonic()
        self._next = 0.0
        self._last = ""
        self._live: Any = None
        if shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.start()

    def update(self, work: Work) -> None:
        now = time.monotonic()
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

    def line(self, work: Work) -> str:
        stages = [
            f"{noun} {work.done[kind]} done, {_running(work, kind)} running"
            for kind, noun in NAMES.items()
            if work.done[kind] or _running(work, kind)
        ]
        parts = [*stages, f"{len(work.failed)} failed"]
        if work.best:
            label = max(work.best, key=lambda name: work.best[name])
            parts.append(f"best {label} {work.best[label]:.1%}")
        parts.append(f"left {_time_left(work)}")
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
        from rich.table import Table

        table = Table(title=f"{self.title}  {duration(time.monotonic() - self.started)}", title_justify="left")
        for column in ("stage", "done", "running", "waiting", "now"):
            table.add_column(column)
        for kind, noun in NAMES.items():
            now = [_now(job) for job in work.running if job.kind == kind and job.started]
            shown = ", ".join(now[:4]) + (f" and {len(now) - 4} more" if len(now) > 4 else "")
            waiting = sum(job.kind == kind for job in (*work.ready, *work.running) if not job.started)
            if not (now or waiting or work.done[kind]):
                continue
            table.add_row(noun, str(work.done[kind]), str(len(now)), str(waiting), shown)
        best = ", ".join(
            f"{label} {value:.1%}" for label, value in sorted(work.best.items(), key=lambda one: -one[1])[:3]
        )
        table.caption = f"{len(work.failed)} failed; best: {best or 'none yet'}; left {_time_left(work)}"
        return table


def _now(job: Job) -> str:
    return f"{job.title} {job.share:.0%}" if job.share else job.title


def _time_left(work: Work) -> str:
    seconds = work.seconds_left()
    return "unknown" if seconds is None else f"about {duration(seconds)}"


def _running(work: Work, kind: str) -> int:
    return sum(job.kind == kind and job.started for job in work.running)
