"""A user's own network: `my_net.py:build`, built by a function of a file. Loads no torch unless the file does."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.network import Architecture, Shape
from trainers.plugins import user_file
from trainers.plugins.own.code import Code

if TYPE_CHECKING:
    from torch import nn

NOUN = "model"
# Name of a parameter -> its index in (classes, shape, mean, std).
ARGUMENTS = {"classes": 0, "num_classes": 0, "shape": 1, "mean": 2, "std": 3}


def is_own(text: str) -> bool:
    """Return True if a study's `model` names a function of a user's file."""
    return re.search(r"\.py(:\w*)?$", text) is not None


def read(text: str, folder: Path) -> tuple[str, str]:
    """Return the network's name and a text with its file, from which any process can load it."""
    path, function = user_file.split(text, "build")
    where = f"{NOUN} {text}"
    file = user_file.absolute(path, folder)
    source = user_file.text_of(user_file.read(file, where), where)
    name = f"{file.name}:{function}"
    return name, json.dumps({"noun": NOUN, "file": str(file), "source": source}, sort_keys=True)


def architecture(name: str, code: Code) -> Architecture:
    """Return the network that a function of the code builds, or the `Architecture` that the name refers to."""
    file, _, function = name.rpartition(":")
    stem, where = Path(file).stem, f"{NOUN} {name}"
    builder = user_file.named(code.run(f"robustsweep_own_{stem}", where), function, where)
    if isinstance(builder, Architecture):
        return replace(builder, build=code.tracked(builder.build))
    display = stem if function == "build" else f"{stem}:{function}"
    build = partial(_built, builder, where, code.here(code.file))
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


def arguments_for(function: Callable[..., Any], values: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and named arguments for the function, out of (classes, shape, mean, std).

    They are passed by name if the function uses these names, otherwise in order. A parameter of another name keeps its
    default: `build(width=64)` is called without arguments.
    """
    parameters = list(inspect.signature(function).parameters.values())
    plain = [item for item in parameters if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]
    needed = [item for item in plain if item.default is item.empty]
    if all(item.name in ARGUMENTS and item.kind is not item.POSITIONAL_ONLY for item in needed):
        return [], {item.name: values[ARGUMENTS[item.name]] for item in plain if item.name in ARGUMENTS}
    return list(values[: len(needed)]), {}
