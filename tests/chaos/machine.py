"""A machine that refuses: files that may not grow, a full disk, a store that may not be written to."""

from __future__ import annotations

import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sweep.work import node_check
from tests.chaos import commands
from tests.chaos.comparison import judge_end, judge_store
from tests.chaos.study import Reference
from tests.chaos.tally import Result

PART = "machine"
KINDS = ("limit", "disk", "readonly", "nospace")
NOBODY = 65534


def cases(reference: Reference, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for number in itertools.count():
        kind = KINDS[number % len(KINDS)]
        yield f"{kind}-{chance.choice((0, 500, 2_000, 20_000, 60_000, 200_000, 1_000_000))}"


def perform(case: str, reference: Reference) -> Result:
    kind, size = case.split("-")
    result = Result(PART, case)
    folder = Path(tempfile.mkdtemp(prefix="chaos-machine-", dir=reference.folder.parent))
    try:
        folder.chmod(0o777)
        getattr(_Refusals(result, reference, folder, int(size)), kind)()
    finally:
        if result.faults:
            result.notes.append(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return result


class _Refusals:
    def __init__(self, result: Result, reference: Reference, folder: Path, size: int) -> None:
        self.result, self.reference, self.folder, self.size = result, reference, folder, size
        self.store = folder / "store"

    def limit(self) -> None:
        """No file may be larger than `size`: every write beyond it fails."""

        def small() -> None:
            commands.without_figures()
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

        self._refused(commands.call(self._run(), self.folder, prepare=small))
        self._goes_on()

    def nospace(self) -> None:
        """From some write on the disk is full, as the store's own calls see it."""

        def full() -> None:
            commands.without_figures()
            left = 1 + self.size // 5_000
            sync = os.fsync

            def fails(descriptor: int) -> None:
                nonlocal left
                left -= 1
                if left <= 0:
                    raise OSError(28, os.strerror(28))
                sync(descriptor)

            os.fsync = fails  # type: ignore[assignment]

        self._refused(commands.call(self._run(), self.folder, prepare=full))
        self._goes_on()

    def disk(self) -> None:
        """A small disk of its own, where the machine lets us mount one."""
        self.store.mkdir()
        size = max(self.size, 64_000)
        mounting = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self.store)]
        if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True).returncode != 0:
            self.result.notes.append("skipped: no disk can be mounted here")
            return
        try:
            self._refused(commands.call(self._run(), self.folder, prepare=_unchecked))
            subprocess.run(["mount", "-o", "remount,size=200m", str(self.store)], check=True, capture_output=True)
            self._goes_on()
        finally:
            subprocess.run(["umount", "-l", str(self.store)], capture_output=True)

    def readonly(self) -> None:
        """A finished store of somebody else's, and one that has to be written to."""
        shutil.copytree(self.reference.store, self.store)
        if self.size % 4_000:
            next(self.store.glob("evaluations/*/*/*.json")).unlink()  # something is to be computed
        for path in [self.store, *self.store.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        looks = (["status", "--store", "store"], ["report", "--store", "store", "--out", "seen", "--no-figures"])
        try:
            for words in looks:
                ended = commands.call(words, self.folder, prepare=_as_nobody)
                judge_end(self.result, words[0], ended)
            for words in (self._run(), ["gc", "--store", "store", "--yes"], ["merge", "other", "--store", "store"]):
                if words[0] == "merge":
                    shutil.copytree(self.reference.store, self.folder / "other")
                self._refused(commands.call(words, self.folder, prepare=_as_nobody), may_do_nothing=True)
        finally:
            for path in [self.store, *self.store.rglob("*")]:
                path.chmod(0o755 if path.is_dir() else 0o644)
        self._goes_on()

    def _run(self) -> list[str]:
        study, data = str(self.reference.study), str(self.reference.folder)
        return f"run --study {study} --data-dir {data} --store store --out out --yes --logger none".split()

    def _refused(self, ended: commands.Ended, *, may_do_nothing: bool = False) -> None:
        """One message and an exit code; a limit that was never reached refuses nothing."""
        self.result.counts["faults"] += 1
        if judge_end(self.result, "the refused command", ended, (0, 1, 2)) and ended.code == 2:
            message = [line for line in ended.output.splitlines() if line.startswith("error: ")]
            if len(message) != 1:
                self.result.bad("lost", f"not one message but {len(message)}: {ended.output[-500:]}")

    def _goes_on(self) -> None:
        """With room again the same command ends well; failed trials are asked for."""
        ended = commands.call([*self._run(), "--retry-failed"], self.folder, prepare=commands.without_figures)
        if judge_end(self.result, "the run afterwards", ended):
            judge_store(self.result, self.reference, self.store)


def _unchecked() -> None:
    """Begin on a disk with little room, so that it is full in the middle of something."""
    commands.without_figures()
    node_check.SPARE_BYTES = 0


def _as_nobody() -> None:
    commands.without_figures()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
