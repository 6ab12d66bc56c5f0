"""Thousands of things that wait, in an order: one comes or goes without a look at the others."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Key = tuple[Any, ...]


class Ordered(Generic[Item]):
    """By a key of each, equal ones in the order in which they came. Whose key has changed is `replace`d."""

    def __init__(self, key: Callable[[Item], Key]) -> None:
        self._key = key
        self._items: list[Item] = []
        self._keys: list[Key] = []  # of those, in the same places
        self._key_of: dict[Item, Key] = {}
        self._number = itertools.count()  # no two keys are the same, so that each leads to its place

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __getitem__(self, place: int) -> Item:
        return self._items[place]

    def key(self, place: int) -> Key:
        return self._keys[place]

    def add(self, item: Item) -> None:
        key = self._key_of[item] = (*self._key(item), next(self._number))
        place = bisect.bisect(self._keys, key)
        self._items.insert(place, item)
        self._keys.insert(place, key)

    def pop(self, place: int) -> Item:
        item = self._items.pop(place)
        del self._keys[place], self._key_of[item]
        return item

    def remove(self, item: Item) -> None:
        self.pop(bisect.bisect_left(self._keys, self._key_of[item]))

    def replace(self, item: Item) -> None:
        self.remove(item)
        self.add(item)

    def replace_all(self) -> None:
        items, self._items, self._keys, self._key_of = self._items, [], [], {}
        for item in items:
            self.add(item)

    def between(self, first: Key, last: Key) -> list[Item]:
        """Those whose keys are not before the first and before the last of these, which may be parts of keys."""
        return self._items[bisect.bisect_left(self._keys, first) : bisect.bisect_left(self._keys, last)]

    def count_between(self, first: Key, last: Key) -> int:
        return bisect.bisect_left(self._keys, last) - bisect.bisect_left(self._keys, first)
