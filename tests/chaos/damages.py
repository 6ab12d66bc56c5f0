"""Damage of every kind to every kind of file, then every command: no silent use, and no traceback.

Two stores are damaged: one that is finished, and one whose run was killed in an evaluation (it has shards and leases).
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sweep.store import layout
from tests.chaos import commands, loop
from tests.chaos.children import Ended, in_child
from tests.chaos.comparison import judge_end, judge_store
from tests.chaos.primitives import Countdown
from tests.chaos.study import Reference
from tests.chaos.tally import Result

PART = "damages"
CODES = (0, 1, 2)
# What stands in a store, as patterns of its paths. The first three of each are damaged, one at a time.
FILES = {
    "manifest": "studies/*.json",
    "trial": "trials/*/record.json",
    "evaluation": "evaluations/*/*/*.json",
    "counterexamples": "evaluations/*/*/*.npz",
    "diagnostics": "diagnostics/*/*.json",
    "arrays": "diagnostics/*/*.npz",
    "search": "searches/*/record.json",
    "candidate": "searches/*/candidates/*.json",
    "journal": "searches/*/journal.log",
    "weights": "trials/*/*.safetensors",
    "log": "trials/*/log.txt",
    "resume": "trials/*/resume.pt",
    "progress": "trials/*/progress.json",
    "shard": "evaluations/*/*/*/shard-*.json",
    "lease": "leases/*.json",
}
KILLED = ("resume", "progress", "shard", "lease")  # of runs that were killed; the others stand in finished stores
Damage = Callable[[Path, Path, random.Random], None]


def _truncate(file: Path, other: Path, chance: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: chance.randrange(max(1, len(content)))])


def _flip(file: Path, other: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes() or b"\0")
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def _empty(file: Path, other: Path, chance: random.Random) -> None:
    file.write_bytes(b"")


def _swap(file: Path, other: Path, chance: random.Random) -> None:
    first, second = file.read_bytes(), other.read_bytes()
    file.write_bytes(second)
    other.write_bytes(first)


def _foreign(file: Path, other: Path, chance: random.Random) -> None:
    file.write_bytes(other.read_bytes())


def _garbage(file: Path, other: Path, chance: random.Random) -> None:
    file.write_bytes(chance.choice([b"[]", b"{}", b"null", b"\xff\xfe\0", b'{"sha256": 1}', chance.randbytes(200)]))


def _folder(file: Path, other: Path, chance: random.Random) -> None:
    file.unlink()
    file.mkdir()


def _dangling(file: Path, other: Path, chance: random.Random) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def _link(file: Path, other: Path, chance: random.Random) -> None:
    file.unlink()
    file.symlink_to(other)


def _loop(file: Path, other: Path, chance: random.Random) -> None:
    file.unlink()
    file.symlink_to(file.name)


def _absent(file: Path, other: Path, chance: random.Random) -> None:
    file.unlink()


# Beside each: whether the other file that it needs is of the same kind.
DAMAGES: dict[str, tuple[Damage, bool]] = {
    "truncate": (_truncate, True),
    "flip": (_flip, True),
    "empty": (_empty, True),
    "swap": (_swap, True),
    "foreign": (_foreign, False),
    "garbage": (_garbage, True),
    "folder": (_folder, True),
    "dangling": (_dangling, True),
    "link": (_link, True),
    "loop": (_loop, True),
    "absent": (_absent, True),
}
STATES = ("finished", "killed")


def cases(reference: Reference, seed: int) -> Iterator[str]:
    """Every kind of file with every damage once, in a random order; then again with other bits and files."""
    chance = random.Random(seed)
    for number in itertools.count(seed * 1000):
        every = list(itertools.product(STATES, FILES, DAMAGES))
        chance.shuffle(every)
        for state, file, damage in every:
            if (file in KILLED) == (state == "killed"):
                yield f"{state}-{file}-{damage}-{number}"


def perform(case: str, reference: Reference) -> Result:
    state, kind, damage, number = case.split("-")
    result, chance = Result(PART, case), random.Random(case)
    folder = Path(tempfile.mkdtemp(prefix="chaos-damages-", dir=reference.folder.parent))
    store = folder / "store"
    try:
        if state == "finished":
            shutil.copytree(reference.store, store)
        else:
            killed_run(store, reference, chance, FILES[kind])
        files = sorted(path for path in store.glob(FILES[kind]) if path.is_file())
        if not files:
            result.notes.append("no such file")
            return result
        file = chance.choice(files)
        change, same_kind = DAMAGES[damage]
        same = [path for path in files if path != file]
        others = [path for path in sorted(store.rglob("*")) if path.is_file() and path.suffix == file.suffix]
        other = chance.choice((same if same_kind else [path for path in others if path not in files]) or others)
        change(file, other, chance)
        result.counts["damages"] += 1
        place = file.relative_to(store).as_posix()
        result.notes.append(place)
        _judge(result, reference, folder, place)
    finally:
        if result.faults:
            result.notes.append(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return result


def killed_run(store: Path, reference: Reference, chance: random.Random, pattern: str) -> None:
    """A store in which such a file stands: a run that is killed where one is left."""

    def run(step: int) -> None:
        Countdown(store, step).install()
        loop.run(reference.study, store, reference.folder)

    for _ in range(50):  # a state is there for a part of a short training only
        # Trainings come first; shards are written in the last third.
        low = 0.65 if "shard" in pattern else 0.1
        in_child(partial(run, int(reference.primitives * chance.uniform(low, 0.95))))
        if any(file.stat().st_size for file in store.glob(pattern)):
            return
        shutil.rmtree(store, ignore_errors=True)


def _judge(result: Result, reference: Reference, folder: Path, place: str) -> None:
    store = folder / "store"
    looks: list[list[str]] = [
        ["status", "--store", "store"],
        ["status", "--store", "store", "--json"],
        ["run", "--study", str(reference.study), "--store", "store", "--dry-run"],
        ["report", "--store", "store", "--out", "seen", "--no-figures"],
        ["diff", "--store", "store"],
        ["export", "--store", "store", "--out", "export"],
        ["merge", "store", "--store", "merged"],
        ["gc", "--store", "store", "--dry-run"],
    ]
    if "diagnostics" in place:
        looks.append(["report", "--store", "store", "--out", "drawn"])
    for name in ("verify", "verify-store"):
        if commands.known(name):
            looks.append([name, "--store", "store"])
    said = ""
    for words in looks:
        ended = commands.call(words, folder)
        judge_end(result, " ".join(words[:1]), ended, CODES)
        said += ended.output
    finished = not any(kind in place for kind in ("resume.pt", "progress.json", "shard-", "leases/"))
    seen = folder / "seen"
    if finished and (seen / "tables.csv").exists():
        known = _values(reference.tables["tables.csv"].decode())
        named = _names(said + (seen / "tables.md").read_text(), place)
        for cell, values in _values((seen / "tables.csv").read_text()).items():
            if values != "[]" and values != known.get(cell) and not named:
                result.bad("silent", f"{cell} shows {values}, not {known.get(cell)}, and nothing names {place}")
    _judge_run(result, reference, folder, place)
    if not result.faults:
        judge_store(result, reference, store, whole=False)


def _judge_run(result: Result, reference: Reference, folder: Path, place: str) -> None:
    words = [
        "run",
        "--study",
        str(reference.study),
        "--store",
        "store",
        "--out",
        "reports",
        "--yes",
        "--logger",
        "none",
    ]
    ended = commands.call([*words, "--data-dir", str(reference.folder)], folder, prepare=commands.without_figures)
    if not judge_end(result, "run", ended, CODES):
        return
    if ended.code != 0:
        if not _names(ended.output, place):
            result.bad("lost", f"run ended with {ended.code} and does not name {place}: {ended.output[-500:]}")
            return
        # What only the user can put right is named, and out of the way the store heals.
        result.notes.append(f"named: {ended.output.strip()[-200:]}")
        damaged = folder / "store" / place
        _take_away(damaged)
        if place.endswith(layout.WEIGHTS):
            shutil.rmtree(damaged.parent, ignore_errors=True)
        again: Ended = commands.call(
            [*words, "--data-dir", str(reference.folder)], folder, prepare=commands.without_figures
        )
        judge_end(result, "run after the damage was taken away", again)


def _values(text: str) -> dict[tuple[str, ...], str]:
    """Cell of a table -> the values of its seeds; what is missing is shown as such, which is not silent."""
    keys = ("table", "row", "column", "study", "label", "measure", "epsilon", "checkpoint")
    return {tuple(row[key] for key in keys): row["values"] for row in csv.DictReader(io.StringIO(text))}


def _take_away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _names(text: str, place: str) -> bool:
    """Whether the file is named, by its path or that of the record that it belongs to."""
    return any(name in text for name in (place, os.path.splitext(place)[0], place.rpartition("/")[0] + "/record.json"))
