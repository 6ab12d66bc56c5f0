"""The records of a store's trials, read by two processes where there are many."""

from __future__ import annotations

import gc
import marshal
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from reports.store.rows import EvaluationRow, Problem, Record, Row, evaluation_row, plain_record, trial_row
from sweep.store.base import Store

# Trials. Below this, starting a process costs more than it saves.
MANY = 500
FIRST_SHARE = 0.55  # of the trials, for the first process: the second one has to start and to hand over
# A path, and what stands there or why it cannot be read.
Content = tuple[str, bytes | str]


class Found(NamedTuple):
    trials: list[Record]
    evaluations: list[EvaluationRow]
    problems: list[Problem]


def read_record(store: Store, path: str, kind: str) -> Record | Problem:
    try:
        data = store.read(path)
    except OSError as fault:
        return Problem(path, str(fault))
    return plain_record(path, data, kind)


def read_trials(store: Store, trials: Sequence[str]) -> Found:
    """Rows of these trials, and of their evaluations, both in order; a file that has gone meanwhile is skipped."""
    folder = store.local("")
    if folder is None:
        return _read_remote(store, trials)
    if len(trials) < MANY or (os.cpu_count() or 1) < 2:
        return _read_folder(str(folder), trials)
    middle = round(FIRST_SHARE * len(trials))
    reader = _start_reader(folder, trials[middle:])
    first = _read_folder(str(folder), trials[:middle])
    second = _answer_of(reader)
    return Found(first.trials + second.trials, first.evaluations + second.evaluations, first.problems + second.problems)


def _read_remote(store: Store, trials: Sequence[str]) -> Found:
    """One listing for each kind of record: asking for every file by name would take a request each."""
    wanted = set(trials)
    records = [path for path in store.list("trials/") if path.endswith("/record.json") and path.count("/") == 2]
    evaluations = [path for path in store.list("evaluations/") if path.endswith(".json") and path.count("/") == 3]
    known = [[path for path in paths if path.split("/")[1] in wanted] for paths in (records, evaluations)]
    return _found(store.read_many(known[0]), store.read_many(known[1]))


def _read_folder(folder: str, trials: Sequence[str]) -> Found:
    records = (f"trials/{trial}/record.json" for trial in trials)
    evaluations = (path for trial in trials for path in _evaluation_paths(folder, trial))
    return _found(_contents(folder, records), _contents(folder, evaluations))


def _found(records: Iterable[Content], evaluations: Iterable[Content]) -> Found:
    problems: list[Problem] = []
    return Found(_rows(records, trial_row, problems), _rows(evaluations, evaluation_row, problems), problems)


def _rows(
    contents: Iterable[Content], row: Callable[[str, bytes], Row | Problem], problems: list[Problem]
) -> list[Row]:
    kept = []
    for path, data in contents:
        one = Problem(path, data) if isinstance(data, str) else row(path, data)
        if isinstance(one, Problem):
            problems.append(one)
        else:
            kept.append(one)
    return kept


def _evaluation_paths(folder: str, trial: str) -> list[str]:
    """Listed here and not by the store, which also asks for every file's size."""
    paths = []
    for checkpoint in _entries(f"{folder}/evaluations/{trial}"):
        # Folders at the next level are shards of an evaluation in progress.
        if checkpoint.is_dir(follow_symlinks=False):
            for entry in _entries(checkpoint.path):
                if entry.name.endswith(".json") and entry.is_file(follow_symlinks=False):
                    paths.append(f"evaluations/{trial}/{checkpoint.name}/{entry.name}")
    return sorted(paths)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _contents(folder: str, paths: Iterable[str]) -> Iterator[Content]:
    for path in paths:
        try:
            with open(f"{folder}/{path}", "rb", buffering=0) as file:
                data = file.read()
        except FileNotFoundError:
            continue
        except OSError as fault:
            yield path, fault.strerror or str(fault)
        else:
            yield path, data


def _start_reader(folder: Path, trials: Sequence[str]) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """A second process reads the second part. multiprocessing is not used: its workers run the caller's main module
    again, or fork it with all its threads."""
    package = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))}
    asked, answer = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    marshal.dump((str(folder), list(trials)), asked)
    asked.seek(0)
    command = [sys.executable, "-m", "reports.store.reading"]
    process = subprocess.Popen(command, stdin=asked, stdout=answer, env=environment)
    asked.close()
    return process, answer


def _answer_of(reader: tuple[subprocess.Popen[bytes], IO[bytes]]) -> Found:
    process, answer = reader
    if process.wait():
        raise RuntimeError(f"the process that reads records ended with code {process.returncode}")
    answer.seek(0)
    with answer:
        # Not marshal.load, which reads a file object by object.
        trials, evaluations, problems = marshal.loads(answer.read())
    return Found(trials, evaluations, [Problem(*problem) for problem in problems])


def main() -> None:
    """Rows of the trials named on standard input, to standard output; both in marshal's form, from and to ourselves."""
    folder, trials = marshal.load(sys.stdin.buffer)
    gc.disable()  # the rows are kept to the end
    found = _read_folder(folder, trials)
    problems = [(problem.path, problem.reason) for problem in found.problems]
    marshal.dump((found.trials, found.evaluations, problems), sys.stdout.buffer)


if __name__ == "__main__":
    main()
