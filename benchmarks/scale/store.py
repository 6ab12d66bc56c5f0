"""A store in memory that counts what it is asked, and how long whoever asks has to wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchmarks.scale.clock import Clock
from sweep.store import layout
from sweep.store.base import Entry, Store

ANSWER_SECONDS = 0.02
PAGE = 1000  # entries of a listing that one question answers


class MemoryStore(Store):
    """Questions about states to go on from are counted apart: a training's weights and its resume state, an
    evaluation's shards, and the listings that look for them."""

    uri = "memory://scale"

    def __init__(self, clock: Clock) -> None:
        self.clock, self.asked, self.checkpoints, self.waited = clock, Counter[str](), Counter[str](), 0.0
        self._content: dict[str, bytes] = {}
        self._tree: dict[str, Any] = {}  # folders of folders of entries

    def read(self, path: str) -> bytes:
        self._ask("read", path)
        if path not in self._content:
            raise FileNotFoundError(path)
        return self._content[path]

    def write(self, path: str, data: bytes) -> None:
        self._ask("write", path)
        self._put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        self._ask("create", path)
        if path in self._content:
            return False
        self._put(path, data)
        return True

    def exists(self, path: str) -> bool:
        self._ask("exists", path)
        return path in self._content

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        place: Any = self._tree
        for part in prefix.split("/"):
            place = place.get(part, {})
        found: list[Entry] = []
        folders = [place]
        while folders:
            for content in folders.pop().values():
                (folders if type(content) is dict else found).append(content)
        self._ask("list", prefix, max(1, -(-len(found) // PAGE)))
        return iter(found)

    def delete(self, path: str) -> None:
        self._ask("delete", path)
        if self._content.pop(path, None) is not None:
            folder, name = self._folder(path)
            del folder[name]

    def leave(self, path: str) -> None:
        """A file that nobody is charged for."""
        self._put(path, b"")

    def local(self, path: str) -> None:
        return None

    def _ask(self, kind: str, path: str, times: int = 1) -> None:
        counted = self.checkpoints if is_checkpoint(kind, path) else self.asked
        counted[f"{kind} {path.split('/')[0]}"] += times
        self.waited += times * ANSWER_SECONDS

    def _put(self, path: str, data: bytes) -> None:
        folder, name = self._folder(path)
        folder[name] = Entry(path, len(data), self.clock.now)
        self._content[path] = data

    def _folder(self, path: str) -> tuple[dict[str, Any], str]:
        *folders, name = path.split("/")
        place = self._tree
        for part in folders:
            place = place.setdefault(part, {})
        return place, name


def is_checkpoint(kind: str, path: str) -> bool:
    name = path.rpartition("/")[2]
    if kind == "list":  # of one training's files, or of one evaluation's
        return path.startswith(f"{layout.TRIALS}/") or path.count("/") == 3
    return name in (layout.RESUME, layout.PROGRESS) or name.endswith(layout.WEIGHTS) or bool(layout.shard_name(path))
