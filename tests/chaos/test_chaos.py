"""A short part of the campaign: a few cases of each part that needs no Ray, always the same ones."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Also for a user who may write nothing: pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory(prefix="robustsweep-chaos-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def campaign(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what it forks must have no threads, and pytest's has."""
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--folder", str(folder), "--seed", "7", "--lanes", "2", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )


@pytest.mark.timeout(300)
def test_nothing_is_lost_doubled_or_different_after_kills_damages_and_faults(folder: Path) -> None:
    ended = campaign(folder, "--cases", "3", "--parts", "kills,damages,bits,flips,drivers,machine")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    total = ended.stdout.splitlines()[-1]
    assert total.startswith("| all | 18 |"), ended.stdout


@pytest.mark.timeout(120)
def test_a_difference_is_seen_and_the_command_that_repeats_it_is_printed(folder: Path) -> None:
    """The campaign against verdicts that are turned round and checksums that nobody compares: were this to pass, the
    test above would say nothing."""
    ended = campaign(folder, "--repeat", "kills:60-after-1-one,bits:evaluation-1", "--spoil")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    for case, words in {"kills:60-after-1-one": "differing: ", "bits:evaluation-1": "silent: "}.items():
        _, found, after = ended.stdout.partition(f"FAILED {case} ")
        assert found and words in after and f"repeat: python -m tests.chaos --repeat {case}\n" in after
