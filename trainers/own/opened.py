"""Which files and folders a piece of Python opens, so that what is made of them is stale when they change."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trainers.own import cache

_EVENTS = ("open", "os.listdir", "os.scandir")
_ours = tuple({os.path.realpath(place) + os.sep for place in (sys.prefix, sys.base_prefix, "/proc", "/dev", "/sys")})
_SYSTEM = ("/etc/", "/usr/lib/", "/usr/share/", "/lib/", "/lib64/", "/run/")
OURS = ("sweep", "trainers", "search_spaces", "reports", "robustsweep")
_INSTALLED = ("site-packages", "dist-packages")
# Readers that open a file in native code, of which Python's audit hooks hear nothing.
_NATIVE = (
    ("safetensors", "safe_open"),
    ("safetensors.torch", "safe_open"),
    ("safetensors.numpy", "safe_open"),
    ("torch.jit", "load"),
)
_watching: list[set[str]] = []
_listeners: list[Callable[[str], None]] = []
_hooked = False


@contextmanager
def opened_files() -> Iterator[set[str]]:
    """Filled while the block runs. What a library opens without Python (HDF5, for example) is not seen."""
    _hook()
    found: set[str] = set()
    _watching.append(found)
    try:
        yield found
    finally:
        _watching.remove(found)
        kept = {os.path.abspath(path) for path in found}
        found.clear()
        found.update(path for path in kept if _counts(path))


@contextmanager
def reads_heard_by(listener: Callable[[str], None]) -> Iterator[None]:
    """Call the listener with the path of every file that is opened for reading, in the thread that opens it."""
    _hook()
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def is_users(path: str) -> bool:
    """Whether a file is neither Python's, nor an installed package's, nor the system's."""
    if path.startswith("<") or any(part in _INSTALLED for part in path.split(os.sep)):
        return False
    return not os.path.realpath(path).startswith((*_ours, *_SYSTEM, *_of_robustsweep()))


def _of_robustsweep() -> Iterator[str]:
    """Our packages, wherever they are, and what we cache."""
    folders = [cache.default_root(), *(getattr(sys.modules.get(name), "__path__", ["/nowhere"])[0] for name in OURS)]
    return (os.path.realpath(folder) + os.sep for folder in folders)


def _hook() -> None:
    global _hooked
    if not _hooked:
        sys.addaudithook(_note)  # stays for the rest of the process, and does nothing outside of a block
        _hooked = True
    import safetensors  # noqa: F401 - what imports its function later imports the one that is heard

    for module, name in _NATIVE:
        reader = getattr(sys.modules.get(module), name, None)
        if reader is not None and not hasattr(reader, "robustsweep_heard"):
            setattr(sys.modules[module], name, _heard(reader))


def _heard(reader: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reader)
    def heard(file: Any, *arguments: Any, **others: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike):
            _note("open", (os.fspath(file), "r", os.O_RDONLY))
        return reader(file, *arguments, **others)

    heard.robustsweep_heard = True  # type: ignore[attr-defined]
    return heard


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if not (_watching or _listeners) or event not in _EVENTS or not arguments:
        return
    if _watching and isinstance(arguments[0], str):
        for found in _watching:
            found.add(arguments[0])
    if _listeners and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike) and _reads(*arguments):
        _listeners[-1](os.fsdecode(arguments[0]))


def _reads(path: Any, mode: Any = None, flags: Any = 0) -> bool:
    """A memory map opens what it reads with r+; what is created or emptied is written."""
    if not isinstance(flags, int):
        return False
    return not flags & (os.O_CREAT | os.O_TRUNC) and flags & os.O_ACCMODE != os.O_WRONLY


def _counts(path: str) -> bool:
    inside = os.path.realpath(path)
    return os.path.exists(path) and not path.endswith((".py", ".pyc")) and not inside.startswith(_ours)
