"""The commands that messages, tables and pages tell a user to type: spelled here, so that each works as it stands."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

DEFAULT_STORE = "store"
VARIABLE = "ROBUSTSWEEP_COMMAND"  # what was typed on another machine to start this run here
SUBMIT, DECISION = "sweep.submit", "sweep.decide"
# What concerns one run alone, with the number of words that follow: none of it belongs into advice for another one.
ONE_RUN = {
    **{"--methods": 1, "--seeds": 1, "--budget": 1, "--wait-for-nodes": 1},
    **{"--retry-failed": 0, "--dry-run": 0, "--json": 0, "--yes": 0, "-y": 0, "--verbose": 0},
}
PLAN = ("--study", "--set", "--methods", "--seeds", "--plugin", "--store", "--address")
DECIDE = ("--study", "--set", "--plugin", "--data-dir", "--address")


def spelled(module: str, *words: str) -> str:
    return shlex.join(["python", "-m", module, *words])


def store_words(uri: str) -> list[str]:
    """--store, unless the store is the one that every command takes by default; shorter below the working folder."""
    if "://" not in uri:
        try:
            here, place = Path.cwd(), Path(uri).absolute()
        except OSError:  # the folder in which a Ray job was started may be gone before it ends
            return ["--store", uri]
        if place == here / DEFAULT_STORE:
            return []
        uri = str(place.relative_to(here)) if place.is_relative_to(here) else str(place)
    return ["--store", uri]


def typed(command: str) -> list[str] | None:
    """The words after `python -m sweep.NAME` or `sweep NAME` of this process; None where it was called from Python."""
    program, words = Path(sys.argv[0]), sys.argv[1:]
    if "sweep" not in (program.name, program.parent.name):
        return None
    return words[1:] if words[:1] == [command] else words


def submitted(fallback: Sequence[str]) -> str:
    """The submission that was typed, without what --env gave: it may be a secret, and this is kept."""
    return spelled(SUBMIT, *without(typed("submit") or fallback, {"--env": 1}))


def run(study: str, made_by: str | None, store: str, *words: str) -> str:
    """The run of a study that `made_by` once ran, with other words for what concerns one run alone."""
    module = "sweep.run" if made_by is None else _module(made_by)
    known = [] if made_by is None else without(given(made_by), {**ONE_RUN, "--store": 1})
    name = [] if "--study" in known else ["--study", study]
    # A path on a cluster stays whole.
    place = ["--store", store] if module == SUBMIT else store_words(store)
    return spelled(module, *name, *known, *words, *place)


def decide(study: str, made_by: str | None, store: str, claim: str) -> str:
    """Seeds for a claim about the study that `made_by` once ran."""
    # A job's address is not one that decide could take.
    options = DECIDE if made_by is None or _module(made_by) != SUBMIT else DECIDE[:-1]
    known = [] if made_by is None else only(given(made_by), options)
    name = [] if "--study" in known else ["--study", study]
    return spelled(DECISION, *name, *known, claim, *store_words(store))


def plan(made_by: str) -> str:
    """What the run costs that this command would start."""
    return spelled("sweep.plan", *only(given(made_by), PLAN))


def narrowed(command: str, *words: str) -> str:
    """The same run with other words where these say something else; they come last."""
    replaced = {word: ONE_RUN[word] for word in words if word in ONE_RUN}
    module = DECISION if _words(command)[2:3] == [DECISION] else _module(command)
    return spelled(module, *without(given(command), replaced), *words)


def given(command: str) -> list[str]:
    """The words that a command was given, after `python -m sweep.run`."""
    return _words(command)[3:]


def _module(command: str) -> str:
    return SUBMIT if _words(command)[2:3] == [SUBMIT] else "sweep.run"


def _words(command: str) -> list[str]:
    """Split a recorded command as a shell would. One that no shell takes (an open quote) counts as not recorded."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def option_words(**options: str | Iterable[str] | None) -> list[str]:
    """data_dir="x" as --data-dir x; of several values each has its option."""
    found = []
    for name, value in options.items():
        for one in () if value is None else (value,) if isinstance(value, str) else value:
            found += [f"--{name.replace('_', '-')}", one]
    return found


def without(words: Sequence[str], options: Mapping[str, int]) -> list[str]:
    found, skipped = [], 0
    for word in words:
        name, equals, _ = word.partition("=")
        if skipped:
            skipped -= 1
        elif name not in options:
            found.append(word)
        elif not equals:
            skipped = options[name]
    return found


def only(words: Sequence[str], options: Collection[str]) -> list[str]:
    """Those options, each with its one value."""
    found = []
    for place, word in enumerate(words):
        if word.partition("=")[0] in options:
            found += [word] if word.startswith("--") and "=" in word else list(words[place : place + 2])
    return found
