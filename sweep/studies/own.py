"""Users' own networks and data sets, named by file or folder and registered before the study is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sweep.commands import option_words
from sweep.errors import UserError
from sweep.studies.file import Fault
from trainers.config import TrialConfig
from trainers.plugins import registry, user_file
from trainers.plugins.own import dataset, network

# For each study key: a test whether a value names a user's own file or folder, and the function that registers it.
OWN: dict[str, tuple[Callable[[str], bool], Callable[[str, Path], str]]] = {
    "model": (network.is_own, registry.load_network),
    "dataset": (dataset.is_own, registry.load_dataset),
}


def own_names(content: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key in OWN if isinstance(value := content.get(key), str) and OWN[key][0](value)}


def require_code_from_user(content: Mapping[str, Any], settings: Iterable[str], study: str) -> None:
    """Refuse code named only by the store's manifest; a store may come from anyone, and loading it must run no code."""
    typed = {setting.partition("=")[0].strip() for setting in settings}
    names = own_names(content)
    code = {
        key: value for key, value in names.items() if key not in typed and not value.startswith(("folder:", "npz:"))
    }
    if not code:
        return
    named = ", ".join(f"{key} = {value!r}" for key, value in code.items())
    words = " ".join(option_words(set=[f"{key}={value}" for key, value in code.items()]))
    raise UserError(
        f"study {study!r} has no file here, and the store's manifest names code: {named}. Code is run only where a "
        f"study file or the command line names it. If you trust the file, add {words}; or give the study's own file: "
        "--study FILE.yaml"
    )


def base_of(key: str, value: str, written: Mapping[str, Any], folder: Path) -> Path:
    """Return the base of a relative path: the study's folder for values in its file, else the working folder."""
    return folder if written.get(key) == value else Path.cwd()


def with_absolute_path(text: str, folder: Path) -> str:
    kind, colon, rest = text.partition(":")
    if colon and kind in ("folder", "npz"):
        return f"{kind}:{user_file.absolute(rest, folder)}"
    path, colon, function = text.rpartition(":")
    return f"{user_file.absolute(path, folder)}:{function}"


def register(content: dict[str, Any], written: Mapping[str, Any], folder: Path) -> Iterator[Fault]:
    """Register a study's own network and data set, and put their registered names into `content`."""
    for key, value in own_names(content).items():
        try:
            content[key] = OWN[key][1](value, base_of(key, value, written, folder))
        except (ValueError, OSError) as fault:
            yield Fault(key, str(fault), value)


def register_named(model: str | None, dataset: str | None) -> tuple[str | None, str | None]:
    """Register the network and data set of a command line; return the registered names, data set first."""
    content = {"model": model, "dataset": dataset}
    faults = list(register(content, {}, Path.cwd()))
    if faults:
        raise UserError("; ".join(f"--{fault}" for fault in faults))
    return content["dataset"], content["model"]


def require_same(config: TrialConfig) -> None:
    """Raise a UserError unless the network and data set registered here are those that the trial was trained with."""
    for key, things in (("model", registry.NETWORKS), ("dataset", registry.DATASETS)):
        name = getattr(config, key)
        if name not in things.names():
            raise UserError(
                f"the trial was trained with a {things.noun} of its user's own; name it with --{key} {name}"
            )
    method = config.method.split("+")[0]
    if config.plugin is None or method not in registry.METHODS.names():
        return
    if registry.fingerprint(method, config.model, config.dataset) != config.plugin:
        raise UserError(
            f"the trial was trained with another text of {config.model} or other images of {config.dataset} than those "
            "named here; name the originals, or train it again"
        )
