"""External weights: loaded without running code and fitted to a network, with a message for every mismatch."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from sweep.errors import UserError
from sweep.evaluation.checkpoints import data_set
from trainers import models
from trainers.attacks.scoring.scorer import ready
from trainers.data import dataset_facts
from trainers.network import Architecture
from trainers.plugins import user_file
from trainers.plugins.own.code import Code

_WRAPPINGS = ("state_dict", "model", "net", "model_state_dict")
_FACTORIES: dict[str, tuple[bytes, Code, Any]] = {}
_PREFIXES = ("module.", "_orig_mod.", "model.")


@dataclass(frozen=True)
class Outside:
    """Weights from outside of the store: their file, the network's name or `factory.py:function`, and the data set."""

    path: str
    model: str
    dataset: str
    standardize: bool = True
    digest: str = ""  # hash of everything that defines the model, so that caches miss after a file changes


@functools.lru_cache(maxsize=1)
def outside_parts(outside: Outside, data_dir: str | None, device: str) -> tuple[Any, Any, Any]:
    """Return the model, the test images and their labels for external weights; the last result is cached."""
    bundle = data_set(outside.dataset, data_dir)
    return ready(load_outside(outside), device), bundle.test_images, bundle.test_labels


def load_outside(outside: Outside) -> Any:
    """Build the network with the file's weights; raise a UserError that lists differing names and shapes."""
    model = _network(outside)
    weights = _without_wrappings(read_weights(Path(outside.path)), set(model.state_dict()))
    _check_fit(weights, model.state_dict(), outside)
    model.load_state_dict(weights)
    return model


def read_weights(path: Path) -> dict[str, Any]:
    """Read the tensors of a safetensors file or a PyTorch state dict. Refuse pickles that would run code."""

    if not path.is_file():
        raise UserError(f"checkpoint {path} does not exist")
    if path.suffix == ".safetensors":
        try:
            return dict(load_file(path))
        except SafetensorError as fault:
            raise UserError(f"{path} is not a safetensors file: {fault}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on pickle protocols; unsafe files are refused below
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as fault:  # many types occur; torch's own message advises running the code
        named = re.search(r"GLOBAL (\S+)", str(fault))
        reason = f"it calls {named[1]}" if named else type(fault).__name__
        raise UserError(
            f"{path} was refused: only tensors are loaded, and this file holds something else or would run code "
            f"({reason}). Save it again with torch.save(model.state_dict(), …) or as safetensors."
        ) from None
    for key in _WRAPPINGS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(_is_weight(*entry) for entry in content.items()):
        raise UserError(
            f"{path} holds no state dict: expected names with dense tensors, as torch.save(model.state_dict(), …)"
        )
    return content


def _is_weight(name: Any, value: Any) -> bool:

    if not isinstance(name, str) or not isinstance(value, torch.Tensor):
        return False
    return value.layout == torch.strided and not value.is_meta and not value.is_quantized


def _network(outside: Outside) -> Any:
    facts = dataset_facts(outside.dataset)
    mean, std = (facts.mean, facts.std) if outside.standardize else (None, None)
    try:
        if ".py:" in outside.model:
            return _made_by_factory(outside.model, facts.classes, facts.shape, mean, std)
        return models.build(outside.model, facts.classes, shape=facts.shape, mean=mean, std=std)
    except ValueError as fault:
        hint = "" if ".py:" in outside.model else " (or a file with a function that builds one: factory.py:function)"
        raise UserError(f"{fault}{hint}") from None


def _made_by_factory(text: str, *given: Any) -> Any:
    """Build a user's network from an Architecture or a function, passing as many of the given values as it takes.

    The values are classes, shape, mean and std, in this order.
    """
    code, found = _factory(text)
    function = found.build if isinstance(found, Architecture) else found
    try:
        with code.active():
            model = function(*given[: len(inspect.signature(function).parameters)])
    except Exception as fault:
        raise UserError(f"{text} failed: {type(fault).__name__}: {fault}") from fault
    if not isinstance(model, nn.Module):
        raise UserError(f"{text} returned {type(model).__name__}, not a torch.nn.Module")
    return model


def _factory(text: str) -> tuple[Code, Any]:
    """Load the code of `factory.py:function` and the object of that name, cached until one of its files changes."""
    path, _, name = text.rpartition(":")
    file, where = Path(os.path.expanduser(path)), f"model factory {path}"
    content = user_file.read(file, where)
    if text not in _FACTORIES or _FACTORIES[text][0] != content or _FACTORIES[text][1].changed():
        code = Code(str(file), user_file.text_of(content, where))
        found = user_file.named(code.run(f"robustsweep_file_{file.stem}", where), name, where)
        _FACTORIES[text] = content, code, found
    return _FACTORIES[text][1:]


def factory_sha256(outside: Outside) -> str:
    """Return the hash of the factory's file, the local modules that it imports and the files that it opens."""
    _network(outside)
    content, code, _ = _FACTORIES[outside.model]
    return code.sha256(hashlib.sha256(content).hexdigest())


def _without_wrappings(weights: dict[str, Any], wanted: set[str]) -> dict[str, Any]:
    """Strip a prefix such as DataParallel's from all names, unless some names already match the network."""
    for prefix in _PREFIXES:
        if weights and all(name.startswith(prefix) for name in weights) and not wanted & set(weights):
            weights = {name.removeprefix(prefix): value for name, value in weights.items()}
    return weights


def _check_fit(weights: dict[str, Any], expected: dict[str, Any], outside: Outside) -> None:
    # Standardisation and batch counts are not weights, so external files may lack them.
    optional = {name for name in expected if name in ("mean", "std") or name.endswith("num_batches_tracked")}
    missing = sorted(set(expected) - set(weights) - optional)
    extra = sorted(set(weights) - set(expected))
    shapes = [
        f"{name} {tuple(weights[name].shape)} in the file, {tuple(expected[name].shape)} in the network"
        for name in expected
        if name in weights and weights[name].shape != expected[name].shape
    ]
    faults = [
        f"{len(found)} {what}: {', '.join(found[:5])}{' …' if len(found) > 5 else ''}"
        for what, found in (("missing", missing), ("not known", extra), ("of another shape", shapes))
        if found
    ]
    if faults:
        raise UserError(
            f"{outside.path} does not fit {outside.model} for {outside.dataset}: {'; '.join(faults)}. "
            "Name the right network with --model."
        )
    for name in optional - set(weights):
        weights[name] = expected[name]
