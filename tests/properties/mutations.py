"""Values that do not belong, at places where something stands."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

AWKWARD = [
    "",
    " ",
    "..",
    "../..",
    "/etc/passwd",
    "a" * 300,
    "nan",
    "inf",
    "-inf",
    "1e999",
    "8/0",
    "8/255",
    "true",
    "null",
    "\0",
    "\ud7ff",
    "ё",
    "=",
    "{}",
    "at",
    "sovr",
    "last",
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.sampled_from([0, 1, -1, 2**31, 2**63, 10**30]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(AWKWARD),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def places(content: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in nested dictionaries and lists."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    found = []
    for key, value in items:
        found += [(*here, key), *places(value, (*here, key))]
    return found


@st.composite
def mutated(draw: st.DrawFn, content: Any) -> Any:
    """A copy in which one to three values are replaced, taken away, doubled or given another name."""
    changed = copy.deepcopy(content)
    for _ in range(draw(st.integers(1, 3))):
        every = places(changed)
        if not every:
            break
        *way, last = draw(st.sampled_from(every))
        holder = changed
        for key in way:
            holder = holder[key]
        action = draw(st.sampled_from(["replace", "replace", "remove", "rename", "add", "copy"]))
        if action == "replace":
            holder[last] = draw(VALUES)
        elif action == "remove":
            del holder[last]
        elif action == "copy":
            _put(holder, draw(st.text(max_size=8)), copy.deepcopy(holder[last]))
        elif action == "add":
            _put(holder, draw(st.text(max_size=8)), draw(VALUES))
        elif isinstance(holder, dict):
            holder[draw(st.text(max_size=8) | st.sampled_from(AWKWARD))] = holder.pop(last)
    return changed


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes with bits flipped, cut off, cut out, doubled or replaced; never the same ones."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(changed) - 1)))
        action = draw(st.sampled_from(["flip", "flip", "cut", "drop", "insert", "zero"]))
        if action == "flip" and changed:
            changed[place] ^= 1 << draw(st.integers(0, 7))
        elif action == "cut":
            del changed[place:]
        elif action == "drop":
            del changed[place : place + draw(st.integers(1, 64))]
        elif action == "insert":
            changed[place:place] = draw(st.binary(min_size=1, max_size=16))
        else:
            changed[place : place + 8] = bytes(len(changed[place : place + 8]))
    return bytes(changed)


def _put(holder: Any, key: str, value: Any) -> None:
    if isinstance(holder, dict):
        holder[key] = value
    else:
        holder.append(value)
