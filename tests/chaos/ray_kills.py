"""Kills and signals under a real Ray, at random moments: of the driver, a worker, the raylet, the GCS, the group."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sweep.store import layout
from tests.chaos.children import Ended
from tests.chaos.comparison import judge_end, judge_store
from tests.chaos.study import STUDY, Reference
from tests.chaos.tally import Result
from tests.patience import patience

PART = "ray"
ROOT = Path(__file__).parents[2]
PROCESSES = {
    "worker": ("ray::StudyTrial", *(f"ray::{label}" for label in STUDY["methods"])),  # with its piece's title
    "agent": ("ray::DashboardAgent", "ray::RuntimeEnvAgent"),
    "raylet": ("raylet/raylet",),
    "gcs": ("gcs_server",),
}
SIGNALS = {
    "driver": signal.SIGKILL,
    "group": signal.SIGKILL,
    "STOP": signal.SIGSTOP,
    "TERM": signal.SIGTERM,
    "INT": signal.SIGINT,
    "group-TERM": signal.SIGTERM,
    "group-INT": signal.SIGINT,
}
TARGETS = (*PROCESSES, *SIGNALS)
# How a run ends whose target was hit in the middle: killed, done all the same, or with the command to go on. A raylet
# ends with its agent, and Ray starts no other.
CODES = {
    **{"driver": (-9,), "group": (-9,), "worker": (0,), "STOP": (0,), "agent": (0, 1), "raylet": (1,), "gcs": (1,)},
    **{name: (130,) for name in ("TERM", "INT", "group-TERM", "group-INT")},
}
STARTED = 15  # the place of a process's start among the words of its state, after its session
STARTING = 0.15  # of all moments lie before the first record
START_SECONDS = 6.0  # of Ray, on a quiet machine
# When the driver was killed, Ray's two agents tell a head that is gone of their raylet's end: a request of a minute.
LEFT_SECONDS = 90.0
HANG_SECONDS = 90.0  # 60 of them are what a driver waits for nodes that may come back
STOP_SECONDS = 15.0  # from a signal to the end


def cases(reference: Reference, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for number in itertools.count():
        yield f"{TARGETS[number % len(TARGETS)]}@{chance.uniform(0, 1):.3f}"


def perform(case: str, reference: Reference) -> Result:
    target, moment = case.split("@")
    result = Result(PART, case)
    folder = Path(tempfile.mkdtemp(prefix="chaos-ray-", dir=reference.folder.parent))
    sessions: list[int] = []
    try:
        process = _start(folder, reference, "struck")
        sessions.append(process.pid)
        _until(float(moment), process, folder / "store", len(reference.outcome))
        hit, struck = _strike(target, process), time.monotonic()
        result.counts["kills"] += hit
        ended = _end(process, folder / "struck")
        seconds = time.monotonic() - struck
        result.notes.append(f"ended with {ended.code} after {seconds:.1f} s")
        # Hit in the last moment, when all is written, a run may end well; workers may also outlive their raylet.
        if judge_end(result, f"the run whose {target} was hit", ended, (*CODES[target], 0)) and ended.code == 130:
            if "to go on: python -m sweep.run" not in ended.output:
                result.bad("lost", f"no command to go on: {ended.output[-500:]}")
            if seconds > patience(STOP_SECONDS):
                result.bad("hangs", f"stopped after {seconds:.0f} s")
        _nothing_left(result, process.pid)
        process = _start(folder, reference, "next")
        sessions.append(process.pid)
        if judge_end(result, "the next run", _end(process, folder / "next")):
            judge_store(result, reference, folder / "store")
        _nothing_left(result, process.pid)
    finally:
        for pid in [pid for session in sessions for pid in _members(session)]:
            _kill(pid)
        if result.faults:
            result.notes.append(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return result


def _until(moment: float, process: subprocess.Popen[bytes], store: Path, records: int) -> None:
    """By what is in the store, not by the clock: a run takes ten seconds here and a minute there."""
    began = time.monotonic()
    # The last records may come in one moment, and a run that has ended cannot be hit.
    wanted = (moment - STARTING) / (1 - STARTING) * 0.9 * records
    while process.poll() is None:
        if moment < STARTING:
            if time.monotonic() - began > patience(START_SECONDS) * moment / STARTING:
                return
        elif sum(layout.kind_at(path.relative_to(store).as_posix()) is not None for path in store.rglob("*")) > wanted:
            return
        time.sleep(0.02)


def _start(folder: Path, reference: Reference, name: str) -> subprocess.Popen[bytes]:
    words = ["--study", str(reference.study), "--store", "store", "--out", "out", "--yes", "--logger", "none"]
    with (folder / name).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "sweep.run", *words, "--data-dir", str(reference.folder)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def _strike(target: str, process: subprocess.Popen[bytes]) -> int:
    """How many were hit: none where the run has ended before there was anybody to hit."""
    while target in PROCESSES and process.poll() is None:
        found = [pid for pid in _members(process.pid) if any(name in _words(pid) for name in PROCESSES[target])]
        if found:
            _kill(found[0])
            return 1
        time.sleep(0.05)
    if process.poll() is not None:
        return 0
    if target.startswith("group"):
        os.killpg(process.pid, SIGNALS[target])
    else:
        process.send_signal(SIGNALS[target])
    if target == "STOP":
        time.sleep(3)
        process.send_signal(signal.SIGCONT)
    return 1


def _end(process: subprocess.Popen[bytes], output: Path) -> Ended:
    hung = False
    try:
        process.wait(patience(HANG_SECONDS))
    except subprocess.TimeoutExpired:
        hung = True
        process.kill()
        process.wait()
    return Ended(process.returncode, output.read_text(errors="replace"), hung)


def _nothing_left(result: Result, session: int) -> None:
    end = time.monotonic() + patience(LEFT_SECONDS)
    while _members(session) and time.monotonic() < end:
        time.sleep(0.2)
    for pid in _members(session):
        result.bad("processes left", f"{pid} {_words(pid)[:80]}")
        _kill(pid)


def _members(session: int) -> list[int]:
    """Processes that a run started, however deep, also when it is gone: it leads a session of its own.

    The oldest first: what a raylet forks bears its name for a moment.
    """
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal():
            continue
        try:
            state, _, _, leader, *more = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if state != "Z" and int(leader) == session:
            found.append((int(more[STARTED]), int(place.name)))
    return [pid for _, pid in sorted(found)]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
