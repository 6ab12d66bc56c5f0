"""Refusal of options that are given twice or contradict each other, which every command makes before it runs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from sweep.errors import UserError

SET = "--set"
LISTS = ("--methods", "--seeds", "--attacks", "--leave-out", "--logger")  # one value names several things
INSTEAD = {"--seeds": "seeds", "--methods": "methods"}  # an option, and the key of a study that it replaces
_TYPED = "sweep.typed"


def refuse_repeated(command: Any, context: Any, words: Sequence[str]) -> None:
    """Raise UserError if these words of a command line give an option two values.

    Options that a group shares with its subcommands count together.
    """
    typed: dict[str, list[Any]] = context.meta.setdefault(_TYPED, {})
    values = _all_values(command, context, words)
    for option in command.params:
        here = values.get(option.name) if option.param_type_name == "option" else None
        if not here:
            continue
        name = max(option.opts, key=len)
        if option.multiple:
            if name == SET:
                _refuse_repeated_settings(here)
                typed[name] = here
            continue
        typed[name] = [*typed.get(name, []), *here]
        if option.is_flag:
            _refuse_both_ways(option, typed[name])
        elif len(typed[name]) > 1:
            raise UserError(_repeated(name, [str(value) for value in typed[name]]))
    for name, key in INSTEAD.items():
        for setting in typed.get(SET, []) if name in typed else []:
            if setting_key(setting) == (key,):
                raise UserError(
                    f"{name} {typed[name][0]} and {SET} {setting} both give the study's {key}, and only one can hold; "
                    "leave one of them out"
                )


def setting_key(setting: str) -> tuple[str, ...]:
    """Split the key of `train.epochs=2` into its parts."""
    return tuple(part.strip() for part in setting.partition("=")[0].split("."))


def _all_values(command: Any, context: Any, words: Sequence[str]) -> dict[str, list[Any]]:
    """Parse the words with every option repeatable, so that no value is lost."""
    twin = copy.copy(command)
    twin.params = [copy.copy(parameter) for parameter in command.params]
    for parameter in twin.params:
        if parameter.param_type_name == "option":
            parameter.multiple = True
    values: dict[str, list[Any]] = twin.make_parser(context).parse_args(args=list(words))[0]
    return values


def _refuse_both_ways(option: Any, values: Sequence[bool]) -> None:
    if len(set(values)) > 1:
        raise UserError(
            f"{option.opts[-1]} and {option.secondary_opts[-1]} contradict each other; leave one of them out"
        )


def _repeated(name: str, values: Sequence[str]) -> str:
    way_out = f"for all of them: {name} {','.join(dict.fromkeys(values))}" if name in LISTS else "give it once"
    return f"{name} takes one value and is given {len(values)}: {', '.join(values)}; {way_out}"


def _refuse_repeated_settings(settings: Sequence[str]) -> None:
    """Refuse two values for one key. A later setting may refine an earlier one, but not replace it."""
    earlier: dict[tuple[str, ...], str] = {}
    for setting in settings:
        key = setting_key(setting)
        for other, text in earlier.items():
            if other[: len(key)] == key:
                raise UserError(
                    f"{SET} {text} and {SET} {setting} both give {'.'.join(key)}, and only one can hold; "
                    "leave one of them out"
                )
        earlier[key] = setting
