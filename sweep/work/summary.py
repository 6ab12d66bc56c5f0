"""The outcome of a run, as text. Importing this loads neither torch nor Ray."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.commands import narrowed
from sweep.listing import count
from sweep.store import layout


@dataclass(frozen=True)
class Failure:
    """A failed task of a run. `stored` ones failed in an earlier run."""

    title: str
    trial: str = ""
    reason: str = ""
    log: tuple[str, ...] = ()
    command: str = ""
    stored: bool = False


@dataclass
class Summary:
    """The outcome of a run."""

    study: str
    complete: bool
    all_there: bool = False
    interrupted: bool = False
    done: dict[str, int] = field(default_factory=dict)
    failed: list[Failure] = field(default_factory=list)
    left: int = 0
    seconds: float = 0.0
    device_hours: float = 0.0
    device_use: float | None = None
    budget_reached: bool = False
    budget: tuple[float, float] | None = None  # device-hours used by all runs, and allowed
    replaced: list[str] = field(default_factory=list)  # columns of earlier settings, as text
    bad_nodes: dict[str, str] = field(default_factory=dict)  # machines that got no more work, and why
    written: list[Path] = field(default_factory=list)
    store: str = ""
    command: str = ""
    result: str = ""  # the study's numbers as text
    trials: Any = None  # Tune's table of the trials, as a data frame

    def text(self) -> str:
        lines = []
        if self.all_there:
            lines.append(f"{self.study}: all was there, nothing to compute")
        else:
            found = (count(self.done[stage], noun) for stage, noun in _DONE.items() if self.done.get(stage))
            did = ", ".join(found) or "nothing"
            use = f", devices {self.device_use:.0%} busy" if self.device_use is not None else ""
            lines.append(f"{self.study}: {did} in {duration(self.seconds)} ({self.device_hours:.2f} device-hours{use})")
        lines += self.replaced
        for failure in self.failed:
            lines += _failure(failure)
        lines += [f"node {host} got no more work: {fault}" for host, fault in self.bad_nodes.items()]
        if self.budget_reached:
            used = "" if self.budget is None else f" ({self.budget[0]:.2f} of {self.budget[1]:g} device-hours)"
            lines.append(f"the budget is used up{used}; {self.left} pieces of work are left")
        elif self.interrupted:
            lines.append("stopped; everything finished is kept, and trials go on from their last epoch")
        elif not self.complete and not self.failed:
            lines.append(f"{self.left} pieces of work are left")
        if not self.complete and self.command:
            # A failed training is not repeated unless asked for.
            again = narrowed(self.command, "--retry-failed") if self.failed else self.command
            lines.append(f"to go on: {again}")
        if self.result:
            lines += ["", self.result, ""]
        lines.append(f"store: {self.store}")
        figures = [path for path in self.written if path.suffix in (".svg", ".png")]
        lines += [f"written: {path.absolute()}" for path in self.written if path.parent.name != "plots"]
        if figures:
            drawn = count(len({path.stem for path in figures}), "figure")
            lines.append(f"written: {figures[0].parent.absolute()} ({drawn})")
        return "\n".join(lines)


_DONE = {"search": "candidate", "train": "training", "attack": "attack"}


def _failure(failure: Failure) -> list[str]:
    if failure.stored:
        name = layout.short(failure.trial)
        return [f"failed before: {failure.title} (trial {name}); run again with --retry-failed"]
    lines = [f"failed: {failure.title}: {failure.reason}"]
    lines += [f"    {line}" for line in failure.log[-8:]]
    if failure.command:
        lines.append(f"    run it again: {failure.command}")
    return lines


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
