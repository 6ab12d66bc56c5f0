"""Checks of a study's `search` section, and the expansion of `all`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import search_spaces
from sweep.errors import UserError
from sweep.studies.check_parts import as_list, as_mapping, as_whole, norm_of, part_faults
from sweep.studies.file import Fault, merged
from sweep.studies.grid import grid_points
from sweep.studies.space import DECLARED, EXAMPLE, has_space, search_space, space_faults
from trainers import composition
from trainers.config import Recipe, Selection
from trainers.plugins import registry
from trainers.plugins.spelling import nearest

SEARCH_SEEDS = (1000, 1001)  # default of a search
SEARCHED = "_searched"  # suffix of columns whose values a search chose
ALL = "all"  # stands for every label whose method has a search space


def search_faults(
    label: str, entry: Any, methods: dict[str, Any], train: dict[str, Any], selection: dict[str, Any], seeds: list[Any]
) -> Iterator[Fault]:
    path = f"search.{label}"
    if label == ALL and label not in methods:
        rule = f"none of the study's methods has such a search space; known: {', '.join(search_spaces.names())}"
        yield Fault(path, rule, shows_value=False)
        return
    if label not in methods:
        rule = (
            f"is none of the study's methods{nearest(label, map(str, methods))} known: {', '.join(map(str, methods))}"
        )
        yield Fault(path, rule, shows_value=False)
        return
    entry, method = entry or {}, methods[label] or {}
    if not isinstance(entry, dict) or not isinstance(method, dict):
        return
    if f"{label}{SEARCHED}" in methods:
        rule = f"its choice stands in a column {label}{SEARCHED}; give the study's method of that name another label"
        yield Fault(path, rule, shows_value=False)
    yield from _space(path, str(method.get("method") or label), entry)
    train = merged(train, as_mapping(method, "train"))
    yield from part_faults(Recipe, f"{path}.train", as_mapping(entry, "train"), train)
    own = merged(selection, as_mapping(method, "selection"))
    norm = norm_of(merged(own, as_mapping(entry, "selection")), merged(train, as_mapping(entry, "train")).get("attack"))
    yield from part_faults(Selection, f"{path}.selection", as_mapping(entry, "selection"), own, norm)
    chosen_on = merged(own, as_mapping(entry, "selection"))
    if not entry.get("pin") and not chosen_on.get("validation"):
        rule = "a search chooses on held-out images; set its selection: {protocol: heldout, validation: …}"
        yield Fault(f"{path}.selection", rule, shows_value=False)
    key = "seed" if "seed" in entry else "seeds"
    given = [entry["seed"]] if "seed" in entry else as_list(entry, "seeds") or SEARCH_SEEDS
    own_seeds = [as_whole(seed) for seed in given]
    both = [seed for seed in own_seeds if seed is not None and seed in seeds]
    if not entry.get("pin") and both:
        rule = (
            f"is a reported seed too, and the search would choose by its result; report other seeds or set {path}.{key}"
        )
        yield Fault(f"{path}.{key}", rule, both[0])
    if len(set(own_seeds)) < len(own_seeds):
        yield Fault(f"{path}.{key}", "holds a seed twice; seeds are replicates", entry.get(key))


def _space(path: str, method: str, entry: dict[str, Any]) -> Iterator[Fault]:
    space = entry.get("space", "paper")
    try:
        composition.parse(method)
    except ValueError:
        return  # reported for the method itself
    faults = space_faults(method, space) if isinstance(space, dict) else []
    yield from (Fault(f"{path}.space", fault, shows_value=False) for fault in faults)
    if faults or not isinstance(space, str | dict):
        return
    if has_space(method, space):
        yield from _grid(path, method, entry)
        return
    if space == DECLARED or method.split("+")[0] not in registry.METHODS.shipped:
        rule = f"{method} declares no hyperparameter(…, low=…, high=…) or choices; write a space, such as {EXAMPLE}"
    else:
        known = ", ".join(search_spaces.names())
        rule = f"method {method!r} has no search space; known: {known}; write space: {EXAMPLE} or space: {DECLARED}"
    yield Fault(path, rule, shows_value=False)


def _grid(path: str, method: str, entry: dict[str, Any]) -> Iterator[Fault]:
    """Yield a fault if the sampler is `grid` but the space has no steps; invalid spaces are reported elsewhere."""
    if entry.get("sampler") != "grid" or entry.get("pin"):
        return
    try:
        space = search_space(method, entry.get("space", "paper"))
    except (ValueError, TypeError):
        return
    try:
        grid_points(space)
    except UserError as fault:
        yield Fault(f"{path}.sampler", str(fault), shows_value=False)


def for_all(search: dict[Any, Any], methods: dict[Any, Any]) -> dict[Any, Any]:
    """Replace `all` with one entry for every label whose method has the space; a label's own entry takes precedence.

    If no method has the space, or if `all` is not a mapping, `all` remains for the check to refuse.
    """
    shared = {} if ALL in search and search[ALL] is None else search.get(ALL)
    if ALL in methods or not isinstance(shared, dict):
        return search
    found = {label: entry for label, entry in search.items() if label != ALL}
    for label, entry in methods.items():
        method = (entry or {}).get("method") or label if isinstance(entry, dict | None) else label
        own = found.get(label)
        if isinstance(own, dict) or (label in found and own is None):
            found[label] = merged(shared, own or {})
        elif label not in found and _has(str(method), shared.get("space", "paper")):
            found[label] = dict(shared)
    return found if found else search


def _has(method: str, space: Any) -> bool:
    try:
        return isinstance(space, str) and has_space(method, space)
    except (ValueError, TypeError):  # an unknown method is reported where it is named
        return False
