"""A study's manifest grows: running two methods of a study today leaves the others' columns in tomorrow's tables."""

from __future__ import annotations

from typing import Any

# What all columns of a study share. A manifest that differs here describes other trials under the same name.
SHARED = ("dataset", "model", "train", "selection", "train_images", "test_images", "margins")


def agree(one: dict[str, Any], other: dict[str, Any]) -> bool:
    first, second = one["study"], other["study"]
    return all(first.get(key) == second.get(key) for key in SHARED) and one["epsilon"] == other["epsilon"]


def united(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """`now`, with what `before` has besides: other methods, and other seeds of columns that have not changed."""
    if before is None or not agree(before, now):
        return now
    configs = now["config_by_label"]
    here = {(cell["label"], cell["seed"]) for cell in now["cells"]}
    kept = [
        cell
        for cell in before["cells"]
        if (cell["label"], cell["seed"]) not in here
        and configs.get(cell["label"], before["config_by_label"].get(cell["label"]))
        == before["config_by_label"].get(cell["label"])
    ]
    if not kept:
        return now
    order = {label: place for place, label in enumerate([*before["config_by_label"], *configs])}
    cells = sorted([*now["cells"], *kept], key=lambda cell: (order[cell["label"]], cell["seed"]))
    labels = {cell["label"] for cell in kept} - set(configs)
    return {
        **now,
        "cells": cells,
        "seeds": sorted({cell["seed"] for cell in cells}),
        "searches": [*now["searches"], *(entry for entry in before["searches"] if entry["label"] in labels)],
        "config_by_label": {**configs, **{label: before["config_by_label"][label] for label in sorted(labels)}},
        "inner_attacks": {**before["inner_attacks"], **now["inner_attacks"]},
        "study": {
            **now["study"],
            "methods": {
                **{k: v for k, v in before["study"]["methods"].items() if k in labels},
                **now["study"]["methods"],
            },
        },
    }
