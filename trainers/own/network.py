"""`my_net.py:build`: a network made by a function of a user's file. Loads no torch before the file does."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers import user_file
from trainers.network import Architecture, Shape
from trainers.own.code import Code

if TYPE_CHECKING:
    from torch import nn

NOUN = "model"
KNOWN = {"classes": 0, "num_classes": 0, "shape": 1, "mean": 2, "std": 3}  # a parameter's name -> what it gets


def is_own(text: str) -> bool:
    return re.search(r"\.py(:\w*)?$", text) is not None


def read(text: str, folder: Path) -> tuple[str, str]:
    """The network's name and the text of its file with the path; a relative path begins in the folder."""
    path, function = user_file.split(text, "build")
    where = f"{NOUN} {text}"
    file = user_file.absolute(path, folder)
    source = user_file.text_of(user_file.read(file, where), where)
    name = f"{file.name}:{function}"
    return name, json.dumps({"noun": NOUN, "file": str(file), "source": source}, sort_keys=True)


def architecture(name: str, code: Code) -> Architecture:
    file, _, function = name.rpartition(":")
    stem, where = Path(file).stem, f"{NOUN} {name}"
    found = user_file.named(code.run(f"robustsweep_own_{stem}", where), function, where)
    if isinstance(found, Architecture):
        return replace(found, build=code.tracked(found.build))
    display = stem if function == "build" else f"{stem}:{function}"
    build = partial(_built, found, where, code.here(code.file))
    return Architecture(code.tracked(build), display=display)


def _built(
    function: Callable[..., Any], where: str, file: str, classes: int, shape: Shape, mean: Any, std: Any
) -> nn.Module:
    from torch import nn

    positional, by_name = arguments_for(function, (classes, shape, mean, std))
    try:
        model = function(*positional, **by_name)
    except Exception as error:  # whatever the user's code raises
        raise ValueError(
            f"{where}{user_file.line_of(error, file)} does not build: {user_file.described(error)}"
        ) from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"{where} returned {type(model).__name__}, not a torch.nn.Module")
    return model


def arguments_for(function: Callable[..., Any], given: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Of (classes, shape, mean, std) what the function asks for: by name where it uses these names, else in order.

    A parameter of another name that has a default keeps it: `build(width=64)` is a network without arguments.
    """
    parameters = list(inspect.signature(function).parameters.values())
    plain = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    needed = [one for one in plain if one.default is one.empty]
    if all(one.name in KNOWN and one.kind is not one.POSITIONAL_ONLY for one in needed):
        return [], {one.name: given[KNOWN[one.name]] for one in plain if one.name in KNOWN}
    return list(given[: len(needed)]), {}
