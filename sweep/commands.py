"""The commands that messages, tables and pages suggest, spelled so that they can be typed as they stand."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

DEFAULT_STORE = "store"
VARIABLE = "ROBUSTSWEEP_COMMAND"  # the command that was typed on another machine to start this run here
SUBMIT, DECISION = "sweep.submit", "sweep.decide"
# Options that concern a single run, with the number of words that follow; they are left out of suggested commands.
ONE_RUN = {
    **{"--methods": 1, "--seeds": 1, "--budget": 1, "--wait-for-nodes": 1},
    **{"--retry-failed": 0, "--dry-run": 0, "--json": 0, "--yes": 0, "-y": 0, "--verbose": 0},
}
PLAN = ("--study", "--set", "--methods", "--seeds", "--plugin", "--store", "--address")
DECIDE = ("--study", "--set", "--plugin", "--data-dir", "--address")


def spelled(module: str, *words: str) -> str:
    return shlex.join(["python", "-m", module, *words])


def store_words(uri: str) -> list[str]:
    """Return the words of --store, or none for the default store. Paths below the working folder become relative."""
    if "://" not in uri:
        try:
            here, place = Path.cwd(), Path(uri).absolute()
        except OSError:  # the folder in which a Ray job was started may be deleted before the job ends
            return ["--store", uri]
        if place == here / DEFAULT_STORE:
            return []
        uri = str(place.relative_to(here)) if place.is_relative_to(here) else str(place)
    return ["--store", uri]


def typed(command: str) -> list[str] | None:
    """Return the words after `python -m sweep.NAME` or `sweep NAME` of this process; None if called from Python."""
    program, words = Path(sys.argv[0]), sys.argv[1:]
    if "sweep" not in (program.name, program.parent.name):
        return None
    return words[1:] if words[:1] == [command] else words


def submitted(fallback: Sequence[str]) -> str:
    """Return the typed submission without its --env options. They may hold secrets, and this text is stored."""
    return spelled(SUBMIT, *without(typed("submit") or fallback, {"--env": 1}))


def run(study: str, made_by: str | None, store: str, *words: str) -> str:
    """Return the command that runs a study again like `made_by`, with `words` in place of single-run options."""
    module = "sweep.run" if made_by is None else _module(made_by)
    known = [] if made_by is None else without(given(made_by), {**ONE_RUN, "--store": 1})
    name = [] if "--study" in known else ["--study", study]
    # A path on a cluster stays absolute.
    place = ["--store", store] if module == SUBMIT else store_words(store)
    return spelled(module, *name, *known, *words, *place)


def decide(study: str, made_by: str | None, store: str, claim: str) -> str:
    """Return the command that adds seeds for a claim about the study that `made_by` ran."""
    # The address of a submitted job is a dashboard, which sweep.decide cannot use.
    options = DECIDE if made_by is None or _module(made_by) != SUBMIT else DECIDE[:-1]
    known = [] if made_by is None else only(given(made_by), options)
    name = [] if "--study" in known else ["--study", study]
    return spelled(DECISION, *name, *known, claim, *store_words(store))


def plan(made_by: str) -> str:
    """Return the command that estimates the cost of the run `made_by`."""
    return spelled("sweep.plan", *only(given(made_by), PLAN))


def narrowed(command: str, *words: str) -> str:
    """Return the same run with `words` appended. Single-run options among them replace earlier ones."""
    replaced = {word: ONE_RUN[word] for word in words if word in ONE_RUN}
    module = DECISION if _words(command)[2:3] == [DECISION] else _module(command)
    return spelled(module, *without(given(command), replaced), *words)


def given(command: str) -> list[str]:
    """Return the words after `python -m sweep.run` of a command."""
    return _words(command)[3:]


def _module(command: str) -> str:
    return SUBMIT if _words(command)[2:3] == [SUBMIT] else "sweep.run"


def _words(command: str) -> list[str]:
    """Split a recorded command as a shell would. Treat one with an open quote as not recorded."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def option_words(**options: str | Iterable[str] | None) -> list[str]:
    """Return data_dir="x" as --data-dir x. Several values repeat the option."""
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
    """Return the words of these options, each with its one value."""
    found = []
    for place, word in enumerate(words):
        if word.partition("=")[0] in options:
            found += [word] if word.startswith("--") and "=" in word else list(words[place : place + 2])
    return found
