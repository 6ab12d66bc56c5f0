"""A disk that is full, read-only, or takes no larger files, under every command: what reads still reads, what must
write ends with exit code 2 and one line, and nothing half-written is left behind."""

import contextlib
import dataclasses
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from stored import evaluation, write_trial

from sweep import application, cli
from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials import cells as planned
from sweep.work.summary import Summary
from tests.sweep.tiny_study import tiny
from trainers import models
from trainers.loop.checkpoint import KeptWeights

DISK_BYTES = 8 * 2**20
READS: dict[str, tuple[str, ...]] = {
    "status": ("status", "--store", "store"),
    "plan": ("plan", "--study", "tiny.yaml", "--store", "store"),
    "run --dry-run": ("run", "--study", "tiny.yaml", "--store", "store", "--dry-run"),
    "diff": ("diff", "--store", "store"),
    "explain": ("explain", "train.epochs"),
    "verify": ("verify", "--store", "store"),
    "verify-store": ("verify-store", "--store", "store"),
    "transfer": ("transfer", "--store", "store"),
    "gc --dry-run": ("gc", "--store", "store", "--dry-run"),
    "check": ("check", "at"),
}
WRITES: dict[str, tuple[str, ...]] = {
    "run": ("run", "--study", "tiny.yaml", "--store", "new", "--out", "out", "--local", "--yes"),
    "decide": ("decide", "at > st", "--study", "tiny.yaml", "--store", "store", "--out", "out"),
    "evaluate": (
        *("evaluate", "--checkpoint", "last.safetensors", "--model", "small_cnn", "--dataset", "digits"),
        *("--attacks", "clean", "--images", "0:8", "--store", "store"),
    ),
    "merge": ("merge", "other", "--store", "target"),
    "report": ("report", "--store", "store", "--out", "out", "--no-figures"),
    "export": ("export", "--store", "store", "--out", "out"),
    "diff": ("diff", "--store", "store", "--out", "out"),
    "explain --out": ("explain", "tiny/at/clean", "--against", "sovr", "--store", "store", "--out", "out"),
    "site": ("site", "store", "--out", "out"),
    "submit": ("submit", "--slurm", "job.sbatch", "--study", "tiny.yaml", "--store", "/shared/store"),
    "new": ("new", "mine.yaml"),
    "retry": ("retry", "--store", "store"),
}
# They delete or rename, which a full disk allows.
CLEARS: dict[str, tuple[str, ...]] = {
    "gc": ("gc", "--store", "store", "--yes"),
    "verify-store --repair": ("verify-store", "--store", "store", "--repair"),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a finished trial, a failed one, one whose weights are damaged, and a state that nobody needs."""
    folder = tmp_path_factory.mktemp("disk")
    study, store = tiny(folder, methods={"at": {}, "st": {}, "sovr": {}}, seeds=[0], search=None), folder / "store"
    opened = open_store(store)
    cells = planned.expand(study)
    for cell, status in zip(cells, ("done", "done", "failed"), strict=True):
        record = write_trial(opened, cell, status)
        if status == "done":
            opened.write_record(evaluation(study, cell))
        opened.write(layout.trial_file(record.trial, layout.RESUME), b"state")
    write_manifest(opened, planned.manifest(study, cells))
    shutil.copytree(store, folder / "other")
    opened.write(layout.weights(cells[1].trial or "", "last"), b"damaged")
    kept = KeptWeights(folder)
    kept.finish({"last": kept.write("last", models.build("small_cnn", 10, shape=(1, 8, 8)))})
    return folder


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """A disk of its own, where the machine lets us mount one."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True).returncode != 0:
        pytest.skip("no disk can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def full(template: Path, folder: Path) -> Iterator[None]:
    with mounted(folder):
        shutil.copytree(template, folder, dirs_exist_ok=True)
        with contextlib.suppress(OSError), (folder / "filling").open("wb", buffering=0) as filling:
            for size in (2**16, 2**12, 1):
                with contextlib.suppress(OSError):
                    while filling.write(bytes(size)):
                        pass
        yield


@contextlib.contextmanager
def readonly(template: Path, folder: Path) -> Iterator[None]:
    with mounted(folder) if os.geteuid() == 0 else contextlib.nullcontext():
        shutil.copytree(template, folder, dirs_exist_ok=True)
        paths = [folder, *folder.rglob("*")]
        if os.geteuid() == 0:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
            yield
            return
        for path in paths:
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            yield
        finally:
            for path in paths:
                path.chmod(0o755 if path.is_dir() else 0o644)


@contextlib.contextmanager
def limited(template: Path, folder: Path) -> Iterator[None]:
    """No file may grow, as under a quota."""
    shutil.copytree(template, folder, dirs_exist_ok=True)
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def run_here(study: Study, store: Store, options: RunOptions) -> Summary:
    """Run a study without Ray, which needs more room than any of these disks has."""
    return run_study(study, store, dataclasses.replace(options, local=True))


DISKS = {"full": full, "read-only": readonly, "limited": limited}
FAULTS = ("No space left on device", "Read-only file system", "File too large", "Permission denied")


@pytest.fixture(params=DISKS)
def disk(request, template, tmp_path, monkeypatch) -> Iterator[str]:
    monkeypatch.setattr("sweep.deciding.run_study", run_here)  # a decision has no --local
    with DISKS[request.param](template, tmp_path):
        os.chdir(tmp_path)
        try:
            yield request.param
        finally:
            os.chdir(template)


def files() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and path.name != "filling"}


def changed(before: dict[Path, bytes]) -> list[str]:
    now = files()
    return sorted(str(path) for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def call(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(words))
    return caught.value.code, capsys.readouterr().err


def test_every_command_is_asked_here() -> None:
    known = set(typer.main.get_command(application.app).commands)
    assert known == {words[0] for table in (READS, WRITES, CLEARS) for words in table.values()}


@pytest.mark.parametrize("command", READS)
def test_what_only_reads_is_not_kept_from_it(disk, capsys, command):
    before = files()
    code, errors = call(READS[command], capsys)
    assert code in (0, 1) and "Traceback" not in errors, (code, errors)  # 1: what it found is not well
    assert not any(fault in errors for fault in FAULTS), errors
    assert changed(before) == []


@pytest.mark.parametrize("command", WRITES)
def test_what_must_write_says_so_in_one_line_and_leaves_nothing_behind(disk, capsys, command):
    before = files()
    code, errors = call(WRITES[command], capsys)
    (message,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert code == 2 and "Traceback" not in errors, (code, errors)
    assert any(fault in message for fault in FAULTS), message
    assert changed(before) == []


@pytest.mark.parametrize("command", CLEARS)
def test_what_makes_room_works_on_a_full_disk(disk, capsys, command):
    before = files()
    with pytest.raises(SystemExit) as caught:
        cli.main(list(CLEARS[command]))
    said = capsys.readouterr()
    assert "Traceback" not in said.err, said
    if disk == "read-only":
        told = [line for line in (said.out + said.err).splitlines() if any(fault in line for fault in FAULTS)]
        assert caught.value.code == 2 and len(told) == 1 and changed(before) == [], said
    else:
        assert caught.value.code in (0, 1) and changed(before), said  # 1: something was damaged
