"""Clean against robust accuracy with lines of equal sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from reports.figures import style
from reports.figures.view import MethodView, Missing, ReportFigure, StudyView

# Where a name may stand around its point, tried in turn: offset in points, alignment.
PLACES = (
    ((7, 4), "left", "bottom"),
    ((7, -4), "left", "top"),
    ((-7, 4), "right", "bottom"),
    ((-7, -4), "right", "top"),
    ((0, 9), "center", "bottom"),
    ((0, -9), "center", "top"),
    ((16, 12), "left", "bottom"),
    ((16, -12), "left", "top"),
    ((-16, 12), "right", "bottom"),
    ((-16, -12), "right", "top"),
    ((16, 26), "left", "bottom"),
    ((16, -26), "left", "top"),
    ((-16, 26), "right", "bottom"),
    ((-16, -26), "right", "top"),
    ((28, 0), "left", "center"),
    ((-28, 0), "right", "center"),
)
# Where a sum may stand along its line, the ends first: the points crowd in the middle.
SHARES = (0.08, 0.93, 0.2, 0.3, 0.8, 0.4, 0.7, 0.5, 0.6)
APART = 0.15  # inches between two lines, at the least
ON_LINE: dict[str, Any] = {
    "fontsize": 8,
    "color": "#444444",
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.5},
}
Point = tuple[MethodView, np.ndarray, np.ndarray]
Place = tuple[tuple[float, float], tuple[int, int], str, str]  # the point, offset in points, alignment

LEADER = {"arrowstyle": "-", "color": style.GREY, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4}


def draw(study: StudyView) -> tuple[Figure, str]:
    caption = (
        f"Robust accuracy is that under AutoAttack, {study.radius}, {study.checkpoint_name}; "
        "mean and one standard deviation over seeds. Along a dashed line the sum of both is constant."
    )
    return _draw([study], style.width(0.6 * len(study.adversarial_methods)), 4.4), caption


def draw_together(*studies: StudyView) -> tuple[Figure, str]:
    settings = [f"{study.title} ({study.radius}, {study.checkpoint_name})" for study in studies]
    caption = (
        f"Robust accuracy is that under AutoAttack; mean and one standard deviation over seeds. {'; '.join(settings)}. "
        "Hollow points are combinations. Along a dashed line the sum of both is constant."
    )
    return _draw(studies, style.FULL, 6.2), caption


def _draw(studies: Sequence[StudyView], width: float, height: float) -> Figure:
    points = []
    for method in (method for study in studies for method in study.adversarial_methods):
        clean, robust = method.accuracies("clean"), method.accuracies("autoattack")
        if clean.size and robust.size:
            points.append((method, clean, robust))
    if not points:
        raise Missing("no method was evaluated with AutoAttack", studies[0].command())
    points.sort(key=lambda point: -point[2].mean())  # the upper of two close points takes the upper place for its name
    figure, axes = style.canvas(width, height)
    axis = axes[0, 0]
    for method, clean, robust in points:
        axis.errorbar(
            clean.mean(),
            robust.mean(),
            xerr=style.deviation(clean),
            yerr=style.deviation(robust),
            linestyle="none",
            markersize=8,
            elinewidth=0.9,
            **method.style.points(),
        )
    axis.margins(0.16)
    sums = _equal_sums(axis, points, studies[0].paper.proposed)
    axis.set_xlabel("clean accuracy (%)")
    axis.set_ylabel("robust accuracy, AutoAttack (%)")
    _place_names(figure, axis, points, sums)
    return figure


def _equal_sums(axis: Axes, points: list[Point], proposed: str) -> list[float]:
    """Lines through the paper's method and its combinations; through the largest sum where there is none."""
    sums = [float(clean.mean() + robust.mean()) for _, clean, robust in points]
    through: dict[str, float] = {}
    for (method, _, _), total in zip(points, sums, strict=True):
        if method.base == proposed:
            through[method.method] = max(total, through.get(method.method, total))
    low, high = axis.get_xlim()
    bottom, top = axis.get_ylim()
    near = APART * axis.figure.dpi / axis.bbox.height * (top - bottom)
    drawn: list[float] = []
    for total in sorted(through.values() or [max(sums)], reverse=True):
        # Nearly equal sums would be one thick line with two numbers on top of each other.
        if any(abs(total - other) < near for other in drawn):
            continue
        drawn.append(total)
        axis.plot([low, high], [total - low, total - high], color=style.GREY, linestyle="--", linewidth=0.9, zorder=0)
    axis.set_xlim(low, high)
    axis.set_ylim(bottom, top)
    return drawn


def _place_names(figure: Figure, axis: Axes, points: list[Point], sums: list[float]) -> None:
    """The sums on their lines and the names at their points, each where it covers the least of what stands already."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the places below hold only while the axes stay where they are
    centres = axis.transData.transform([(clean.mean(), robust.mean()) for _, clean, robust in points])
    taken = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in centres]
    (low, high), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    for total in sums:
        ends = max(low, total - top), min(high, total - bottom)
        along = [ends[0] + share * (ends[1] - ends[0]) for share in SHARES]
        _put(axis, f"sum {total:.1f}", [((x, total - x), (0, 0), "center", "center") for x in along], taken, **ON_LINE)
    for method, clean, robust in points:
        where = float(clean.mean()), float(robust.mean())
        _put(axis, method.name, [(where, *place) for place in PLACES], taken)


def _put(axis: Axes, text: str, places: list[Place], taken: list[Bbox], **options: Any) -> None:
    """At the first place that is free, or at the one that is least covered."""
    renderer = axis.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    tried = []
    for order, (point, offset, horizontal, vertical) in enumerate(places):
        leader = LEADER if abs(offset[0]) > 10 else None
        label = axis.annotate(
            text, point, offset, textcoords="offset points", ha=horizontal, va=vertical, arrowprops=leader, **options
        )
        label.update_positions(renderer)
        # Of the name alone: an annotation's own extent has its leader in it.
        box = Text.get_window_extent(label, renderer).expanded(1.04, 1.1)
        inside = axis.bbox.x0 <= box.x0 and box.x1 <= axis.bbox.x1 and axis.bbox.y0 <= box.y0 and box.y1 <= axis.bbox.y1
        covered = sum(_area(Bbox.intersection(box, other)) for other in taken)
        label.set_visible(False)
        tried.append((not inside, covered, order, label, box))
        if inside and not covered:
            break
    *_, label, box = min(tried, key=lambda one: one[:3])
    label.set_visible(True)
    for *_, other, _ in tried:
        if other is not label:
            other.remove()
    taken.append(box)


def _area(box: Bbox | None) -> float:
    return 0.0 if box is None else float(box.width * box.height)


FIGURES = [ReportFigure(30, "trade_off", "Clean against robust accuracy", draw, together=draw_together)]
