"""Kills and signals under a real Ray, at random moments: of the driver, a worker, the raylet, the GCS, the group."""

from __future__ import annotations

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
from tests.chaos.study import Reference
from tests.chaos.tally import Result
from tests.patience import patience

PART = "ray"
ROOT = Path(__file__).parents[2]
MARK = "ROBUSTSWEEP_CHAOS"
TARGETS = ("driver", "worker", "raylet", "gcs", "group", "TERM", "INT", "STOP", "group-TERM", "group-INT")
STARTING = 0.15  # of all moments lie before the first record
START_SECONDS = 6.0  # of Ray, on a quiet machine
LEFT_SECONDS = 60.0  # Ray's agents look for their raylet now and then, and end when it is gone
HANG_SECONDS = 150.0  # 60 of them are what a driver waits for nodes that may come back


def cases(reference: Reference, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for number in itertools.count():
        yield f"{TARGETS[number % len(TARGETS)]}@{chance.uniform(0, 1):.3f}"


def perform(case: str, reference: Reference) -> Result:
    target, moment = case.split("@")
    result = Result(PART, case)
    folder = Path(tempfile.mkdtemp(prefix="chaos-ray-", dir=reference.folder.parent))
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    try:
        process = _start(folder, reference, mark)
        _until(float(moment), process, folder / "store", len(reference.outcome))
        hit = _strike(target, process, mark)
        result.counts["kills"] += hit
        ended = _end(process, folder)
        codes = (0, 1, 2, 130) if target not in ("driver", "group") else (-9, 0)
        judge_end(result, f"the run whose {target} was hit", ended, codes)
        if target in ("TERM", "INT", "group-TERM", "group-INT") and hit and ended.code not in (0, 130):
            result.bad("lost", f"a signal ended with {ended.code}, not 130: {ended.output[-500:]}")
        _nothing_left(result, mark)
        again = _end(_start(folder, reference, mark), folder)
        if judge_end(result, "the next run", again):
            judge_store(result, reference, folder / "store")
        _nothing_left(result, mark)
    finally:
        for pid in _marked(mark):
            os.kill(pid, signal.SIGKILL)
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


def _start(folder: Path, reference: Reference, mark: str) -> subprocess.Popen[bytes]:
    words = ["--study", str(reference.study), "--store", "store", "--out", "out", "--yes", "--logger", "none"]
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "sweep.run", *words, "--data-dir", str(reference.folder)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), MARK: mark},
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def _strike(target: str, process: subprocess.Popen[bytes], mark: str) -> int:
    """How many were hit: none where the run had ended, or has no such process yet."""
    if process.poll() is not None:
        return 0
    names = {"worker": "ray::", "raylet": "raylet/raylet", "gcs": "gcs_server"}
    if target == "driver":
        process.kill()
    elif target.startswith("group"):
        kind = {"group": signal.SIGKILL, "group-TERM": signal.SIGTERM, "group-INT": signal.SIGINT}[target]
        os.killpg(process.pid, kind)
    elif target == "STOP":
        process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        process.send_signal(signal.SIGCONT)
    elif target in ("TERM", "INT"):
        process.send_signal(getattr(signal, f"SIG{target}"))
    else:
        found = [pid for pid in _marked(mark) if names[target] in _words(pid)]
        for pid in found[:1]:
            os.kill(pid, signal.SIGKILL)
        return len(found[:1])
    return 1


def _end(process: subprocess.Popen[bytes], folder: Path) -> Ended:
    hung = False
    try:
        process.wait(patience(HANG_SECONDS))
    except subprocess.TimeoutExpired:
        hung = True
        process.kill()
        process.wait()
    return Ended(process.returncode, (folder / "output").read_text(errors="replace"), hung)


def _nothing_left(result: Result, mark: str) -> None:
    end = time.monotonic() + patience(LEFT_SECONDS)
    while _marked(mark) and time.monotonic() < end:
        time.sleep(0.2)
    left = _marked(mark)
    if left:
        result.counts["processes left"] += len(left) - 1
        result.bad("processes left", "; ".join(f"{pid} {_words(pid)[:80]}" for pid in left))
        for pid in left:
            os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    """Processes that a run started, however deep: the mark is in their environment."""
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal():
            continue
        try:
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and f"{MARK}={mark}".encode() in (place / "environ").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
