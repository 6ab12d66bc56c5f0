"""Where an evaluated model comes from: a trial's checkpoint in the store, or weights from elsewhere."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import pickle
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.errors import UserError
from sweep.store import open_store
from trainers.config import TrialConfig

_WRAPPINGS = ("state_dict", "model", "net", "model_state_dict")
_PREFIXES = ("module.", "_orig_mod.", "model.")


@dataclass(frozen=True)
class Outside:
    """Weights that no trial of the store made: a file, the network's name or `factory.py:function`, the data set."""

    path: str
    model: str
    dataset: str
    standardize: bool = True


@functools.lru_cache(maxsize=2)
def trial_model(store_uri: str, trial: str, checkpoint: str, device: str) -> tuple[Any, TrialConfig]:
    """The model of a trial's checkpoint, kept for the next piece of work of the same process."""
    from trainers.evaluate import ready
    from trainers.train import load_model

    store = open_store(store_uri)
    record = store.trial_record(trial)
    if record is None:
        raise UserError(f"trial {trial[:16]} has no record in {store.uri}; train it first")
    config = TrialConfig.model_validate(record["config"])
    path = f"trials/{trial[:16]}/{checkpoint}.safetensors"
    if not store.exists(path):
        stored = ", ".join(record["checkpoints"]) or "none"
        raise UserError(f"trial {trial[:16]} has no checkpoint {checkpoint!r}; stored: {stored}")
    local = store.local(path)
    if local is not None:
        model = load_model(config, local, device)
    else:
        with tempfile.TemporaryDirectory(prefix="robustsweep-") as folder:
            store.fetch_file(path, Path(folder) / "weights.safetensors")
            model = load_model(config, Path(folder) / "weights.safetensors", device)
    return ready(model, device), config


def trial_parts(store_uri: str, trial: str, checkpoint: str, data_dir: str | None, device: str) -> tuple[Any, Any, Any]:
    """The model, the test images and their labels."""
    model, config = trial_model(store_uri, trial, checkpoint, device)
    bundle = data_set(config.dataset, data_dir).limited(config.train_images, config.test_images)
    return model, bundle.test_images, bundle.test_labels


@functools.lru_cache(maxsize=1)
def outside_parts(outside: Outside, data_dir: str | None, device: str) -> tuple[Any, Any, Any]:
    """The same for weights from elsewhere."""
    from trainers.evaluate import ready

    bundle = data_set(outside.dataset, data_dir)
    return ready(load_outside(outside), device), bundle.test_images, bundle.test_labels


@functools.lru_cache(maxsize=1)
def data_set(name: str, data_dir: str | None) -> Any:
    from trainers import data

    try:
        return data.load(name, data_dir, download=False)
    except data.DataMissing as fault:
        raise UserError(str(fault)) from None


def load_outside(outside: Outside) -> Any:
    """The network with the file's weights; every difference in names or shapes is a message, not a traceback."""
    model = _network(outside)
    weights = _without_wrappings(read_weights(Path(outside.path)), set(model.state_dict()))
    _check_fit(weights, model.state_dict(), outside)
    model.load_state_dict(weights)
    return model


def read_weights(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file or of a PyTorch state dict. A pickle that would run code is refused."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise UserError(f"checkpoint {path} does not exist")
    if path.suffix == ".safetensors":
        try:
            return dict(load_file(path))
        except SafetensorError as fault:
            raise UserError(f"{path} is not a safetensors file: {fault}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols; what cannot be loaded safely is refused below
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as fault:
        first = str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__
        raise UserError(
            f"{path} was refused: only tensors are loaded, and this file holds something else or would run code "
            f"({first}). Save it again with torch.save(model.state_dict(), …) or as safetensors."
        ) from None
    for key in _WRAPPINGS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise UserError(
            f"{path} holds no state dict: expected names with tensors, as torch.save(model.state_dict(), …)"
        )
    return content


def _network(outside: Outside) -> Any:
    from trainers import models
    from trainers.data import dataset_facts

    facts = dataset_facts(outside.dataset)
    if ".py:" in outside.model:
        return _made_by_factory(outside.model, facts.classes)
    mean, std = (facts.mean, facts.std) if outside.standardize else (None, None)
    try:
        return models.build(outside.model, facts.classes, shape=facts.shape, mean=mean, std=std)
    except ValueError as fault:
        raise UserError(f"{fault} (or a file with a function that builds one: factory.py:function)") from None


def _made_by_factory(text: str, classes: int) -> Any:
    """The user's own network: a function of no argument or of the number of classes, named on the command line."""
    from torch import nn

    path, _, name = text.rpartition(":")
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise UserError(f"model factory {path} does not exist")
    specification = importlib.util.spec_from_file_location(f"robustsweep_factory_{file.stem}", file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    try:
        specification.loader.exec_module(module)
    except Exception as fault:
        raise UserError(f"model factory {path} cannot be imported: {type(fault).__name__}: {fault}") from fault
    function = getattr(module, name, None)
    if not callable(function):
        found = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UserError(f"model factory {path} has no function {name!r}; it has: {', '.join(found) or 'none'}")
    try:
        model = function(classes) if inspect.signature(function).parameters else function()
    except Exception as fault:
        raise UserError(f"{text} failed: {type(fault).__name__}: {fault}") from fault
    if not isinstance(model, nn.Module):
        raise UserError(f"{text} returned {type(model).__name__}, not a torch.nn.Module")
    return model


def _without_wrappings(weights: dict[str, Any], wanted: set[str]) -> dict[str, Any]:
    """Names without the prefix that DataParallel and the like put before all of them, where only that differs."""
    for prefix in _PREFIXES:
        if weights and all(name.startswith(prefix) for name in weights) and not wanted & set(weights):
            weights = {name.removeprefix(prefix): value for name, value in weights.items()}
    return weights


def _check_fit(weights: dict[str, Any], expected: dict[str, Any], outside: Outside) -> None:
    # Standardisation and batch counts are not weights: files from elsewhere may lack them.
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
