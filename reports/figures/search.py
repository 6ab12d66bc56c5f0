"""A search: its landscape over two hyperparameters, and its candidates in the order proposed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.figures import style
from reports.figures.view import MissingResults, ReportFigure, StudyView
from reports.papers.paper import Paper
from sweep.store.records.search import SearchRecord

CONTOUR_POINTS = 8  # least number of candidates for contours


@dataclass(frozen=True)
class ShownCandidate:
    """A candidate as drawn; `square` is the legend entry if it has the paper's or the study's own values."""

    values: dict[str, Any]
    score: float | None
    pruned: bool
    chosen: bool
    square: str  # empty for any other values


def draw_landscape(study: StudyView) -> tuple[Figure, str]:
    searches = _searches(study)
    rows, columns = style.grid_shape(len(searches), 3)
    figure, axes = style.canvas(style.width(0.6 + 3.1 * columns), 0.5 + 2.9 * rows, rows, columns)
    for axis, (record, candidates) in zip(axes.ravel(), searches, strict=False):
        names = _varied(candidates, study.paper)
        if len(names) >= 2:
            marks = _plane(axis, candidates, names[0], names[1])
            if marks is not None:
                figure.colorbar(marks, ax=axis, shrink=0.9, pad=0.02, label=_objective(record))
        else:
            _profile(axis, candidates, names[0] if names else None)
        _label(axis, names, study.paper)
        axis.set_title(study.display(record.label), loc="left")
    style.hide_unused(axes, len(searches))
    _legend(figure, axes)
    return figure, f"Searched hyperparameters and {_objective(searches[0][0])} of each candidate."


def draw_history(study: StudyView) -> tuple[Figure, str]:
    searches = _searches(study)
    rows, columns = style.grid_shape(len(searches), 3)
    figure, axes = style.canvas(style.width(0.8 + 2.6 * columns), 0.7 + 2.4 * rows, rows, columns)
    for axis, (record, candidates) in zip(axes.ravel(), searches, strict=False):
        _timeline(axis, candidates)
        axis.set_title(study.display(record.label), loc="left")
    style.hide_unused(axes, len(searches))
    figure.supxlabel("candidate, in the order proposed", fontsize=9)
    figure.supylabel(_objective(searches[0][0]), fontsize=9)
    _legend(figure, axes)
    return figure, "Score of each candidate; the line is the best score so far of a full-length training."


def _legend(figure: Figure, axes: np.ndarray) -> None:
    handles = {
        name: handle for axis in axes.ravel() for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if handles:
        style.legend_above(figure, list(handles.values()), list(handles), columns=5)


def _ring(axis: Axes, x: float, y: float) -> None:
    axis.plot(
        x, y, "o", markersize=12, markerfacecolor="none", markeredgewidth=2, color=style.VERMILLION, label="chosen",
        linestyle="none", zorder=4,
    )  # fmt: skip


def _square(axis: Axes, x: float, y: float, label: str) -> None:
    axis.plot(
        x, y, "s", markersize=10, markerfacecolor="none", color=style.BLACK, label=label,
        linestyle="none", zorder=4,
    )  # fmt: skip


def _searches(study: StudyView) -> list[tuple[SearchRecord, list[ShownCandidate]]]:
    """Return the searches with at least one score, each with its candidates."""
    searches = [(record, _read(record, study.paper)) for record in study.searches]
    scored = [
        (record, candidates)
        for record, candidates in searches
        if any(candidate.score is not None for candidate in candidates)
    ]
    if not scored:
        raise MissingResults("no search of this study has a finished candidate", study.command())
    return scored


def _objective(record: SearchRecord) -> str:
    name = record.objective.replace("_", " ").replace("pgd", "PGD")
    return style.plain(name, 50) + (" (%)" if name.endswith("accuracy") else "")


def _read(record: SearchRecord, paper: Paper) -> list[ShownCandidate]:
    chosen = record.chosen or {}
    marked, square = record.own_value, "the study's value"
    if paper.has_method(record.method):
        marked, square = record.paper_value, "the paper's value"
    factor = 100.0 if record.objective.endswith("accuracy") else 1.0
    return [
        ShownCandidate(
            candidate.hyperparameters,
            None if candidate.value is None else factor * candidate.value,
            candidate.state == "pruned",
            chosen=bool(chosen) and _equal(candidate.hyperparameters, chosen),
            square=square if marked and _equal(candidate.hyperparameters, marked) else "",
        )
        for candidate in record.candidates
    ]


def _equal(values: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return True if the two share at least one name and agree on all shared names."""
    shared = values.keys() & wanted.keys()
    return bool(shared) and all(values[name] == wanted[name] for name in shared)


def _numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _varied(candidates: list[ShownCandidate], paper: Paper) -> list[str]:
    """Return the numeric hyperparameters with several values; those whose effect the paper shows come first."""
    names: dict[str, set[float]] = {}
    for candidate in candidates:
        for name, value in candidate.values.items():
            if _numeric(value):
                names.setdefault(name, set()).add(float(value))
    several = [name for name, values in names.items() if len(values) > 1]
    first = [effect.varied for effect in paper.effects]
    return sorted(several, key=lambda name: (first.index(name) if name in first else len(first), name))


def _label(axis: Axes, names: list[str], paper: Paper) -> None:
    axis.set_xlabel(paper.symbols.get(names[0], names[0]) if names else "")
    axis.set_ylabel(paper.symbols.get(names[1], names[1]) if len(names) >= 2 else "score")


def _plane(axis: Axes, candidates: list[ShownCandidate], across: str, up: str) -> PathCollection | None:
    placed = [
        c for c in candidates if c.score is not None and _numeric(c.values.get(across)) and _numeric(c.values.get(up))
    ]
    full = [c for c in placed if not c.pruned]
    points = np.array([[float(c.values[across]), float(c.values[up])] for c in full]).reshape(-1, 2)
    scores = np.array([c.score for c in full], dtype=float)
    if len(full) >= CONTOUR_POINTS and np.linalg.matrix_rank(points - points.mean(axis=0)) == 2:
        axis.tricontourf(points[:, 0], points[:, 1], scores, levels=8, cmap="cividis", alpha=0.45)
    marks = None
    if full:
        marks = axis.scatter(points[:, 0], points[:, 1], c=scores, cmap="cividis", s=42, edgecolor="black", zorder=3)
    pruned = [(float(c.values[across]), float(c.values[up])) for c in placed if c.pruned]
    if pruned:
        axis.plot(*zip(*pruned, strict=True), "x", color=style.GREY, label="pruned early", linestyle="none", zorder=3)
    for candidate in placed:
        point = float(candidate.values[across]), float(candidate.values[up])
        if candidate.chosen:
            _ring(axis, *point)
            axis.annotate(
                f"{candidate.score:.1f}", point, (0, 10), textcoords="offset points", ha="center", weight="bold"
            )
        if candidate.square:
            _square(axis, *point, candidate.square)
    axis.use_sticky_edges = False
    axis.margins(0.14)
    return marks


def _profile(axis: Axes, candidates: list[ShownCandidate], name: str | None) -> None:
    """Plot the score over the single varied hyperparameter, or in one column if none varies."""
    for candidate in candidates:
        if candidate.score is None:
            continue
        if name is not None and not _numeric(candidate.values.get(name)):
            continue
        x = float(candidate.values[name]) if name is not None else 0.0
        marker, color, label = (
            ("x", style.GREY, "pruned early") if candidate.pruned else ("o", style.BLUE, "full length")
        )
        axis.plot(x, candidate.score, marker, color=color, label=label, linestyle="none", zorder=3)
        if candidate.chosen:
            _ring(axis, x, candidate.score)
        if candidate.square:
            _square(axis, x, candidate.score, candidate.square)
    axis.margins(0.14)


def _timeline(axis: Axes, candidates: list[ShownCandidate]) -> None:
    best: list[tuple[int, float]] = []
    for number, candidate in enumerate(candidates, start=1):
        if candidate.score is None:
            continue
        if candidate.pruned:
            axis.plot(number, candidate.score, "x", color=style.GREY, label="pruned early")
            continue
        axis.plot(number, candidate.score, "o", color=style.BLUE, label="full length")
        best.append((number, max([candidate.score, *(score for _, score in best)])))
        if candidate.chosen:
            _ring(axis, number, candidate.score)
        if candidate.square:
            _square(axis, number, candidate.score, candidate.square)
    if best:
        axis.step(*zip(*best, strict=True), where="post", color=style.BLACK, linewidth=1.0, label="best so far")
    axis.margins(0.1)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


FIGURES = [
    ReportFigure(120, "search_landscape", "Landscape of the search", draw_landscape),
    ReportFigure(130, "search_history", "History of the search", draw_history),
]
