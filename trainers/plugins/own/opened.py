"""The files and folders that a piece of Python opens, so that what is made from them is stale once they change."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trainers.plugins.own import cache

_EVENTS = ("open", "os.listdir", "os.scandir")
_ours = tuple({os.path.realpath(folder) + os.sep for folder in (sys.prefix, sys.base_prefix, "/proc", "/dev", "/sys")})
_SYSTEM = ("/etc/", "/usr/lib/", "/usr/share/", "/lib/", "/lib64/", "/run/")
OURS = ("sweep", "trainers", "search_spaces", "reports", "robustsweep")
_INSTALLED = ("site-packages", "dist-packages")
# Readers that open a file in native code, which Python's audit hooks do not report.
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
    """Yield a set that is filled while the block runs. Files opened outside Python (by HDF5, say) are missed."""
    _hook()
    paths: set[str] = set()
    _watching.append(paths)
    try:
        yield paths
    finally:
        _watching.remove(paths)
        absolute = {os.path.abspath(path) for path in paths}
        paths.clear()
        paths.update(path for path in absolute if _counts(path))


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
    """Return True if a file belongs neither to Python, nor to an installed package, nor to the system."""
    if path.startswith("<") or any(part in _INSTALLED for part in path.split(os.sep)):
        return False
    return not os.path.realpath(path).startswith((*_ours, *_SYSTEM, *_of_robustsweep()))


def _of_robustsweep() -> Iterator[str]:
    """Return the folders of our packages and of our cache."""
    folders = [cache.default_root(), *(getattr(sys.modules.get(name), "__path__", ["/nowhere"])[0] for name in OURS)]
    return (os.path.realpath(folder) + os.sep for folder in folders)


def _hook() -> None:
    global _hooked
    if not _hooked:
        sys.addaudithook(_note)  # cannot be removed, but does nothing outside a block
        _hooked = True
    import safetensors  # noqa: F401 - later imports of its function then get the wrapped one

    for module, name in _NATIVE:
        reader = getattr(sys.modules.get(module), name, None)
        if reader is not None and not hasattr(reader, "robustsweep_heard"):
            setattr(sys.modules[module], name, _heard(reader))


def _heard(reader: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reader)
    def heard(file: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike):
            _note("open", (os.fspath(file), "r", os.O_RDONLY))
        return reader(file, *arguments, **named)

    heard.robustsweep_heard = True  # type: ignore[attr-defined]
    return heard


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if not (_watching or _listeners) or event not in _EVENTS or not arguments:
        return
    if _watching and isinstance(arguments[0], str):
        for paths in _watching:
            paths.add(arguments[0])
    if _listeners and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike) and _reads(*arguments):
        _listeners[-1](os.fsdecode(arguments[0]))


def _reads(path: Any, mode: Any = None, flags: Any = 0) -> bool:
    """Return True for a file opened to be read. A memory map opens it with r+; O_CREAT and O_TRUNC mean writing."""
    if not isinstance(flags, int):
        return False
    return not flags & (os.O_CREAT | os.O_TRUNC) and flags & os.O_ACCMODE != os.O_WRONLY


def _counts(path: str) -> bool:
    """Return True if a change of this path makes the data stale."""
    resolved = os.path.realpath(path)
    return os.path.exists(path) and not path.endswith((".py", ".pyc")) and not resolved.startswith(_ours)
