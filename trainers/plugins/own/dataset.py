"""A user's own data set: `folder:PATH`, `npz:PATH` or `my_data.py:load`, decoded once, identified by its content."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from trainers.dataset import DataMissing, DataSource, Parts
from trainers.plugins import user_file
from trainers.plugins.own import arrays, cache
from trainers.plugins.own import folder as images
from trainers.plugins.own.code import Code
from trainers.plugins.own.opened import opened_files

NOUN = "data set"
ORIGIN = ("kind", "path", "side", "function", "source")  # keys that determine how to decode
MODULES = "modules and files"  # another such key, for a file that imports local modules


def is_own(text: str) -> bool:
    """Return True if a study's `dataset` names a folder or file of the user's."""
    return re.match(r"(folder|npz):", text) is not None or re.search(r"\.py(:\w*)?$", text) is not None


def read(text: str, folder: Path) -> tuple[str, str]:
    """Return the data set's name and a text from which any process can load it. Decode it if it is not cached."""
    origin, name = _origin(text, folder)
    root = cache.default_root()
    code = None
    if origin["kind"] == "file":
        code = Code(origin["path"], origin["source"], files=False)
        if content := code.content():
            origin[MODULES] = content
    entry = _entry(origin, root, code)
    content = {"noun": NOUN, **origin, "cache": str(root), "facts": asdict(entry.facts), "sha256": entry.sha256}
    return name, json.dumps(content, sort_keys=True)


def source(name: str, content: dict[str, Any]) -> tuple[DataSource, str]:
    """Return the data set and the hash of what can change a number: its images and its number of classes."""
    display = re.sub(r"(\.py:load|\.npz)$", "", name.removeprefix("folder:").removeprefix("npz:"))
    data_source = DataSource(
        cache.facts_from(content["facts"]),
        display=display,
        load=partial(_load, name, content),
        files=content["path"],
        sha256=content["sha256"],
    )
    identity = f"{data_source.facts.classes} classes, {data_source.sha256}"
    return data_source, hashlib.sha256(identity.encode()).hexdigest()


def _origin(text: str, folder: Path) -> tuple[dict[str, Any], str]:
    kind, colon, rest = text.partition(":")
    side, function, code = None, "", ""
    if colon and kind in ("folder", "npz"):
        if kind == "folder" and (suffix := re.search(r"@(\d+)$", rest)):
            side, rest = int(suffix[1]), rest[: suffix.start()]
            if not 4 <= side <= 4096:
                raise ValueError(f"{text}: images are resized to a side from 4 to 4096, not {side}")
        path = user_file.absolute(rest, folder)
        name = f"{kind}:{path.name}{f'@{side}' if side else ''}"
        if not (path.is_dir() if kind == "folder" else path.is_file()):
            raise DataMissing(f"{path} is not {'a folder' if kind == 'folder' else 'a file'}; name one that exists")
    else:
        kind, (rest, function) = "file", user_file.split(text, "load")
        path = user_file.absolute(rest, folder)
        where = f"{NOUN} {text}"
        name, code = f"{path.name}:{function}", user_file.text_of(user_file.read(path, where), where)
    return dict(zip(ORIGIN, (kind, str(path), side, function, code), strict=True)), name


def _entry(origin: dict[str, Any], root: Path, code: Code | None = None) -> cache.CacheEntry:
    """Return the cached data set, decoding it if needed.

    `code` is the file's own code where the study is read; elsewhere the received code is used.
    """
    key = cache.key_of({name: origin[name] for name in (*ORIGIN, MODULES) if name in origin})
    return cache.entry(root, key, partial(_stamp, origin), partial(_reading, origin, code))


def _stamp(origin: dict[str, Any], watched: tuple[str, ...]) -> str:
    if origin["kind"] != "folder":
        return cache.stamp_of(watched)
    _, train, test = images.files_of(Path(origin["path"]))
    return cache.stamp_of(file for file, _ in [*train, *test])


def _reading(origin: dict[str, Any], code: Code | None) -> cache.Reading:
    path = origin["path"]
    if origin["kind"] == "folder":
        return images.reading(*images.files_of(Path(path)), origin["side"])
    if origin["kind"] == "npz":
        return arrays.of_npz(path)
    where = f"{NOUN} {os.path.basename(path)}:{origin['function']}"
    code = code or Code(path, origin["source"], origin.get(MODULES, {}), files=False)
    with opened_files() as opened:
        module = code.run(f"robustsweep_own_{Path(path).stem}", where)
        function = user_file.named(module, origin["function"], where)
        try:
            with code.active():
                returned = function()
        except Exception as error:  # whatever the user's code raises
            raise DataMissing(
                f"{where}{user_file.line_of(error, path)} does not load: {user_file.described(error)}"
            ) from error
    return arrays.of_returned(returned, where, tuple(sorted({*opened, *code.sources_here()})))


def _load(name: str, content: dict[str, Any], folder: Path, download: bool) -> Parts:
    """Return the images from this machine's cache, decoding them if needed. Reject images other than at the start."""
    root = Path(os.environ.get(cache.VARIABLE) or content["cache"])
    path = cache.folder_of(root, content["sha256"])
    if not path.is_dir():
        entry = _entry(content, root)
        if entry.sha256 != content["sha256"]:
            raise DataMissing(
                f"{NOUN} {name!r}: {content['path']} holds other images here (sha256 {entry.sha256[:16]}…) than where "
                f"the study was read ({content['sha256'][:16]}…); give every node the same files"
            )
    return cache.mapped(path)
